// A round of the bench "drain" in Go: os/exec, a goroutine for each pipe. benches/common/peers/foreign.rs says what it is told and
// what it says.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	keep   = 2 << 20
	read   = 64 << 10
	warmUp = 10
)

// The newest bytes of a stream, in a ring that is recycled.
type tail struct {
	ring  []byte
	at    int
	total uint64
}

var rings = sync.Pool{New: func() any { return make([]byte, keep) }}

func newTail() *tail { return &tail{ring: rings.Get().([]byte)} }

func (t *tail) free() { rings.Put(t.ring) } //nolint:staticcheck // a slice header for two megabytes

func (t *tail) fill(pipe io.Reader) error {
	for {
		end := t.at + read
		if end > keep {
			end = keep
		}
		n, err := pipe.Read(t.ring[t.at:end])
		t.at = (t.at + n) % keep
		t.total += uint64(n)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func clock(id uintptr) uint64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&at)), 0)
	return uint64(at.Nano())
}

func now() uint64 { return clock(1) }
func cpu() uint64 { return clock(2) }

type child struct {
	command *exec.Cmd
	tails   [2]*tail
	ended   [2]chan error
}

func start(args []string, stdin *os.File) (*child, error) {
	c := &child{command: exec.Command(args[0], args[1:]...)}
	if stdin != nil {
		c.command.Stdin = stdin
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := c.command.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	for i, pipe := range []io.ReadCloser{stdout, stderr} {
		c.tails[i], c.ended[i] = newTail(), make(chan error, 1)
		go func(i int, pipe io.ReadCloser) {
			err := c.tails[i].fill(pipe)
			pipe.Close()
			c.ended[i] <- err
		}(i, pipe)
	}
	return c, nil
}

// When the status and everything was known, after the time that the child has left; and its bytes.
func (c *child) finish() (sample [2]uint64, bytes uint64, err error) {
	// Wait of the command closes the pipes; that of the process does not.
	if _, err = c.command.Process.Wait(); err != nil {
		return
	}
	status := now()
	for _, ended := range c.ended {
		if err = <-ended; err != nil {
			return
		}
	}
	verdict := now()
	out := c.tails[0]
	if out.total == 8 {
		stamp := binary.LittleEndian.Uint64(out.ring[:8])
		sample = [2]uint64{status - stamp, verdict - stamp}
	}
	bytes = out.total + c.tails[1].total
	for _, tail := range c.tails {
		tail.free()
	}
	return
}

func run(args []string) error {
	count, err := strconv.Atoi(args[4])
	if err != nil {
		return err
	}
	noisy, err := strconv.Atoi(args[5])
	if err != nil {
		return err
	}
	program := args[1]
	for i := 0; i < warmUp; i++ {
		one, err := start([]string{program, "quiet", "0"}, nil)
		if err != nil {
			return err
		}
		if _, _, err = one.finish(); err != nil {
			return err
		}
	}
	var bytes uint64
	samples := make([][2]uint64, 0, count)
	cpuBefore, before := cpu(), now()
	crowd := make([]*child, noisy)
	for i := range crowd {
		if crowd[i], err = start([]string{program, "noisy", "0"}, os.Stdin); err != nil {
			return err
		}
	}
	if _, err = fmt.Println("open"); err != nil {
		return err
	}
	for i := 0; i < count; i++ {
		one, err := start(args[1:4], nil)
		if err != nil {
			return err
		}
		sample, some, err := one.finish()
		if err != nil {
			return err
		}
		samples, bytes = append(samples, sample), bytes+some
	}
	for _, one := range crowd {
		if err = one.command.Process.Kill(); err != nil {
			return err
		}
	}
	for _, one := range crowd {
		_, some, err := one.finish()
		if err != nil {
			return err
		}
		bytes += some
	}
	cost, wall := cpu()-cpuBefore, now()-before
	var usage syscall.Rusage
	if err = syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"samples": samples, "bytes": bytes, "cpu": cost, "wall": wall, "resident": usage.Maxrss << 10,
	})
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: drain PROGRAM ROLE NUMBER COUNT NOISY")
		os.Exit(2)
	}
	// A round without an end is a failure of its own.
	time.AfterFunc(10*time.Minute, func() { os.Exit(3) })
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
