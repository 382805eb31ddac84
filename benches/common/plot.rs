//! The plots: distributions as percentile curves, and numbers over sizes. SVG, logarithmic upwards,
//! a line for each peer.

use super::Fail;
use super::figures::Unit;
use hdrhistogram::Histogram;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::FontDesc;
use std::path::Path;

/// Pixels, as far as an SVG has any.
const SIZE: (u32, u32) = (960, 540);
/// Points of a curve between one nine and the next.
const STEPS: u32 = 24;

/// A peer's name, and its points.
pub(crate) type Line = (String, Vec<(f64, f64)>);

/// Draws what part of the samples is below which value. To the right the share of those above it is
/// a tenth at each mark, as far as the samples go: 0 %, 90 %, 99 %.
#[expect(
    clippy::cast_precision_loss,
    reason = "far more digits than a plot has"
)]
pub(crate) fn percentiles(
    path: &Path,
    title: &str,
    peers: &[(String, Histogram<u64>)],
    unit: Unit,
) -> Result<(), Fail> {
    let longest = peers.iter().map(|(_, all)| all.len()).max().unwrap_or(0);
    let nines = (longest.max(10) as f64).log10();
    let curve = |all: &Histogram<u64>| {
        let end = (all.len().max(1) as f64).log10();
        let steps = (0_u32..)
            .map(|step| f64::from(step) / f64::from(STEPS))
            .take_while(|at| *at < end)
            .collect::<Vec<_>>();
        let at = |nines: f64| {
            (
                nines,
                all.value_at_quantile(1.0 - 10_f64.powf(-nines)) as f64,
            )
        };
        steps
            .into_iter()
            .map(at)
            .chain([(end, all.max() as f64)])
            .collect::<Vec<_>>()
    };
    let lines: Vec<Line> = peers
        .iter()
        .map(|(name, all)| (name.clone(), curve(all)))
        .collect();
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let mut chart =
        prepared(&root, title)?.build_cartesian_2d(0.0..nines, heights(&lines).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("percentile")
        .x_labels(8)
        .x_label_formatter(&|nines| percent(*nines))
        .y_label_formatter(&|value| unit.show(Some(*value)))
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    for (number, (name, points)) in lines.into_iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points, style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(root.present()?)
}

/// Draws numbers over sizes, both logarithmic.
pub(crate) fn over_sizes(path: &Path, title: &str, lines: &[Line], unit: Unit) -> Result<(), Fail> {
    let sizes = lines
        .iter()
        .flat_map(|(_, points)| points)
        .map(|(size, _)| *size);
    let (low, high) = sizes.fold((f64::MAX, 1.0), |(low, high), size| {
        (size.min(low), size.max(high))
    });
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    let across = (low.min(high)..high.max(low.min(high) * 2.0)).log_scale();
    let mut chart =
        prepared(&root, title)?.build_cartesian_2d(across, heights(lines).log_scale())?;
    chart
        .configure_mesh()
        .x_label_formatter(&|size| format!("{size:.0}"))
        .y_label_formatter(&|value| unit.show(Some(*value)))
        .light_line_style(BLACK.mix(0.05))
        .draw()?;
    for (number, (name, points)) in lines.iter().enumerate() {
        let style = Palette99::pick(number).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(root.present()?)
}

fn prepared<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, Shift>,
    title: &str,
) -> Result<ChartBuilder<'a, 'b, SVGBackend<'b>>, Fail> {
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root);
    chart
        .caption(title, font(18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(84);
    Ok(chart)
}

fn font(size: i32) -> FontDesc<'static> {
    FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Normal)
}

/// From a little below the lowest point to a little above the highest: something has to be between
/// them, and above zero.
fn heights(lines: &[Line]) -> std::ops::Range<f64> {
    let values = lines
        .iter()
        .flat_map(|(_, points)| points)
        .map(|(_, value)| value.max(1e-3));
    let (low, high) = values.fold((f64::MAX, 1e-3), |(low, high), value| {
        (value.min(low), value.max(high))
    });
    low.min(high) / 1.5..high * 1.5
}

/// 0 is 0 %, 1 is 90 %, 2 is 99 %; with as many digits as tell one from the next.
fn percent(nines: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small number, and above zero"
    )]
    let digits = (nines.ceil() - 1.0).max(0.0) as usize;
    let text = format!("{:.digits$}", 100.0 * (1.0 - 10_f64.powf(-nines)));
    format!(
        "{} %",
        if digits == 0 {
            &text
        } else {
            text.trim_end_matches('0').trim_end_matches('.')
        }
    )
}
