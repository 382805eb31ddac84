//! Parses durations and sizes of the command line, and formats durations for people.

use lastwords::Bound;
use std::time::Duration;

/// Units of a duration in nanoseconds. Each may occur once, in this order.
const UNITS: [(&str, u64); 6] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

/// Parses `500ms`, `1.5s`, `1h30m`, `0` or `infinite`.
pub(crate) fn parse_bound(text: &str) -> Result<Bound, String> {
    if text == "infinite" {
        Ok(Bound::Never)
    } else {
        parse_duration(text).map(Bound::After)
    }
}

/// Parses a time limit: a duration above zero, or `infinite` for no limit.
pub(crate) fn parse_limit(text: &str) -> Result<Bound, String> {
    let bound = parse_bound(text)?;
    if bound.is_zero() {
        Err("a limit of 0 would end the command before it began".into())
    } else {
        Ok(bound)
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u64 = 0;
    let mut units = UNITS.as_slice();
    while !rest.is_empty() {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.len()
            - tail
                .trim_start_matches(|c: char| c.is_ascii_alphabetic())
                .len();
        let (unit, tail) = tail.split_at(letters);
        let place = units.iter().position(|(name, _)| *name == unit);
        let (Some((whole, billionths)), Some(place)) = (parse_decimal(number), place) else {
            return Err("expected a duration such as 500ms, 1.5s, 1h30m, 0 or infinite".into());
        };
        let (scale, shorter) = (units[place].1, &units[place + 1..]);
        let wanted = u128::from(whole) * u128::from(scale)
            + u128::from(billionths) * u128::from(scale) / 1_000_000_000;
        let sum = u64::try_from(wanted)
            .ok()
            .and_then(|wanted| nanos.checked_add(wanted));
        nanos = sum.ok_or("longer than 584 years; infinite is another way to say so")?;
        units = shorter;
        rest = tail;
    }
    if text.is_empty() {
        Err("an empty duration".into())
    } else {
        Ok(Duration::from_nanos(nanos))
    }
}

/// Parses `12` or `1.5` into the whole number and billionths. At most nine digits after the point.
fn parse_decimal(text: &str) -> Option<(u64, u64)> {
    let Some((whole, fraction)) = text.split_once('.') else {
        return Some((text.parse().ok()?, 0));
    };
    let missing = 9usize.checked_sub(fraction.len())?;
    let billionths = fraction.parse::<u64>().ok()? * 10u64.pow(u32::try_from(missing).ok()?);
    Some((whole.parse().ok()?, billionths))
}

/// Parses `65536`, `64KiB`, `2MiB` or `1GiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let scale: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return Err("expected a size such as 65536, 64KiB or 2MiB".into()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "expected a size such as 65536, 64KiB or 2MiB".to_owned())?;
    number
        .checked_mul(scale)
        .ok_or_else(|| "too large".to_owned())
}

/// Formats a duration with at most two units: `1h30m`, `2.5s`, `84us`.
pub(crate) fn format_duration(d: Duration) -> String {
    let seconds = d.as_secs();
    match seconds {
        3600.. => pair(seconds / 3600, "h", seconds % 3600 / 60, "m"),
        60.. => pair(seconds / 60, "m", seconds % 60, "s"),
        1.. => tenths(d.as_millis() / 100, "s"),
        0 if d.is_zero() => "0s".to_owned(),
        0 if d.as_millis() > 0 => tenths(d.as_micros() / 100, "ms"),
        0 => format!("{}us", d.as_micros()),
    }
}

fn pair(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large}{large_unit}")
    } else {
        format!("{large}{large_unit}{small}{small_unit}")
    }
}

fn tenths(tenths: u128, unit: &str) -> String {
    if tenths.is_multiple_of(10) {
        format!("{}{unit}", tenths / 10)
    } else {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_documented() {
        let ms = |n| Ok(Bound::After(Duration::from_millis(n)));
        assert_eq!(parse_bound("500ms"), ms(500));
        assert_eq!(parse_bound("1s"), ms(1000));
        assert_eq!(parse_bound("2m"), ms(120_000));
        assert_eq!(parse_bound("1h30m"), ms(5_400_000));
        assert_eq!(
            parse_bound("1d2h3m4s5ms6us"),
            Ok(Bound::After(Duration::from_micros(93_784_005_006)))
        );
        assert_eq!(parse_bound("0"), ms(0));
        assert_eq!(parse_bound("0s"), ms(0));
        assert_eq!(parse_bound("1.5s"), ms(1500));
        assert_eq!(parse_bound("1m0.25s"), ms(60_250));
        assert_eq!(
            parse_bound("1.8ms"),
            Ok(Bound::After(Duration::from_micros(1800)))
        );
        assert_eq!(
            parse_bound("0.000000001s"),
            Ok(Bound::After(Duration::from_nanos(1)))
        );
        assert_eq!(parse_bound("infinite"), Ok(Bound::Never));
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "-1s",
            "1.5",
            ".5s",
            "1.s",
            "1.2.3s",
            ".s",
            "1.0000000001s",
            "30M",
            "1s1m",
            "1s1s",
            "1 s",
            " 1s",
            "99999999999999999999s",
            "999999d",
            "inf",
            "1s\n",
        ] {
            assert!(parse_bound(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn what_is_shown_can_be_said() {
        for micros in [0, 84, 1500, 2_000_000, 2_540_000, 60_000_000, 5_400_000_000] {
            let shown = format_duration(Duration::from_micros(micros));
            assert!(
                parse_bound(&shown).is_ok_and(|read| read.duration().map(format_duration).as_ref() == Some(&shown)),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_limit_of_zero_is_refused() {
        assert!(parse_limit("0").is_err() && parse_limit("0ms").is_err());
        assert_eq!(parse_limit("1s"), Ok(Bound::After(Duration::from_secs(1))));
        assert_eq!(parse_limit("infinite"), Ok(Bound::Never));
    }

    #[test]
    fn sizes_are_read_in_bytes_and_binary_units() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("123"), Ok(123));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("2MiB"), Ok(2 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        for text in [
            "",
            "KiB",
            "-1",
            "1.5MiB",
            "2 MiB",
            "2mib",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert!(parse_size(text).is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn durations_are_shown_in_two_units_at_most() {
        for (micros, text) in [
            (0, "0s"),
            (84, "84us"),
            (1500, "1.5ms"),
            (2_000_000, "2s"),
            (2_540_000, "2.5s"),
            (60_000_000, "1m"),
            (5_400_000_000, "1h30m"),
        ] {
            assert_eq!(format_duration(Duration::from_micros(micros)), text);
        }
    }
}
