//! Feeds a stream in pieces, for tests and fuzzing of the streaming form.

use super::projection::Projection;

/// Appends the lines that the streaming form gives for pieces of the given sizes, used in turn.
pub(crate) fn split(
    projection: &Projection,
    mut bytes: &[u8],
    sizes: &[usize],
    out: &mut Vec<String>,
) {
    let mut lines = projection.lines();
    for size in sizes.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (piece, rest) = bytes.split_at((*size).clamp(1, bytes.len()));
        lines.push(piece, &mut |line: &str| out.push(line.to_owned()));
        bytes = rest;
    }
    lines.finish(&mut |line: &str| out.push(line.to_owned()));
}
