//! Holds children back before their first step. Only tests close the gate.

#[cfg(test)]
type Closed = Option<std::sync::Arc<std::sync::atomic::AtomicBool>>;
#[cfg(not(test))]
type Closed = ();

/// A gate that a child passes before its first step.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Closed);

#[cfg(not(test))]
impl Gate {
    pub(super) fn wait(&self) {}
}

#[cfg(test)]
impl Gate {
    /// A gate that stays closed until [`Gate::open`].
    pub(super) fn closed() -> Gate {
        Gate(Some(std::sync::Arc::new(true.into())))
    }

    pub(super) fn open(&self) {
        if let Some(closed) = &self.0 {
            closed.store(false, std::sync::atomic::Ordering::Release);
        }
    }

    /// Called by the child: yields until the gate is open.
    pub(super) fn wait(&self) {
        while let Some(closed) = &self.0
            && closed.load(std::sync::atomic::Ordering::Acquire)
        {
            let _ = super::child_call::sys(libc::SYS_sched_yield, [0; 5]);
        }
    }
}
