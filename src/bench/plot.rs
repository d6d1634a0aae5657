//! `--plot FILE.svg`: bars with their figures, to be read at a glance.

use std::fmt::Write;

/// One bar.
pub struct Bar {
    pub label: String,
    pub value: f64,
}

const ROW: usize = 24;
const LEFT: usize = 230;
const WIDTH: usize = 420;

/// A bar chart as SVG text; `unit` follows each figure.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(f64::MIN_POSITIVE, f64::max);
    let height = 50 + bars.len() * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"800\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    for (n, bar) in bars.iter().enumerate() {
        let (top, width) = (40 + n * ROW, bar.value / most * WIDTH as f64);
        // writing to a String cannot fail
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\" fill=\"#4878a8\"/>\
             <text x=\"{:.1}\" y=\"{}\">{:.0} {unit}</text>",
            LEFT - 8,
            top + 14,
            escaped(&bar.label),
            ROW - 6,
            LEFT as f64 + width + 6.0,
            top + 14,
            bar.value
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_each() {
        let bar = |label: &str, value| Bar { label: label.to_string(), value };
        let svg = bars("a < b", "ns", &[bar("one", 10.0), bar("t&o", 20.0)]);
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("a &lt; b") && svg.contains("t&amp;o") && svg.contains("20 ns"));
        assert!(svg.contains("width=\"420.0\"") && svg.contains("width=\"210.0\""));
    }
}
