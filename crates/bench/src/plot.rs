//! Curves over rounds as an SVG file: panels below each other, each with its own scale from zero.

/// One panel.
pub(crate) struct Panel {
    /// Title with the unit.
    pub title: &'static str,
    /// Curves: a name, and a value for each round.
    pub curves: Vec<(&'static str, Vec<f64>)>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = 24.0;
const COLOURS: [&str; 3] = ["#1b6ca8", "#c0392b", "#6b7a1f"];
/// Lines at even parts of the scale.
const STEPS: u32 = 4;

/// Draws panels over rounds that are numbered from `first`.
pub(crate) fn svg(heading: &str, first: u32, panels: &[Panel]) -> String {
    let height = 30.0 + HEIGHT * panels.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"13\">{}</text>\n",
        escaped(heading)
    );
    for (n, panel) in panels.iter().enumerate() {
        draw(&mut text, panel, first, 30.0 + HEIGHT * n as f64);
    }
    text.push_str("</svg>\n");
    text
}

fn draw(text: &mut String, panel: &Panel, first: u32, top: f64) {
    let (low, high) = (top + HEIGHT - BOTTOM, top + TOP);
    let values = || panel.curves.iter().flat_map(|(_, values)| values);
    let scale = scale_of(values().copied().filter(|v| v.is_finite()).fold(0.0, f64::max));
    let rounds = panel.curves.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    let x = |n: usize| LEFT + (WIDTH - LEFT - RIGHT) * n as f64 / (rounds.max(2) - 1) as f64;
    let y = |value: f64| low - (low - high) * value / scale;
    text.push_str(&format!("<text x=\"{LEFT}\" y=\"{}\">{}</text>\n", top + 16.0, panel.title));
    for step in 0..=STEPS {
        let value = scale * f64::from(step) / f64::from(STEPS);
        let (at, right) = (y(value), WIDTH - RIGHT);
        text.push_str(&format!(
            "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n",
            LEFT - 6.0,
            at + 4.0,
            short(value)
        ));
    }
    for n in (0..rounds).step_by(rounds.div_ceil(10).max(1)) {
        let (at, below) = (x(n), low + 15.0);
        let label = first + n as u32;
        text.push_str(&format!(
            "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{label}</text>\n"
        ));
    }
    for (n, (name, values)) in panel.curves.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points = values.iter().enumerate().filter(|(_, value)| value.is_finite());
        let points: Vec<String> =
            points.map(|(n, value)| format!("{:.1},{:.1}", x(n), y(*value))).collect();
        let (points, key) = (points.join(" "), LEFT + 280.0 + 130.0 * n as f64);
        text.push_str(&format!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"/>\n\
             <text x=\"{key}\" y=\"{}\" fill=\"{colour}\">{name}</text>\n",
            top + 16.0
        ));
    }
}

/// The next round number that is not smaller.
fn scale_of(largest: f64) -> f64 {
    if largest <= 0.0 {
        return 1.0;
    }
    let unit = 10f64.powf(largest.log10().floor());
    let steps = [1.0, 1.2, 1.6, 2.0, 2.4, 3.2, 4.0, 6.0, 8.0, 10.0];
    steps.map(|step| step * unit).into_iter().find(|scale| *scale >= largest).unwrap_or(largest)
}

fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e4 => format!("{:.0} k", v / 1e3),
        v if v >= 10.0 => format!("{v:.0}"),
        v => format!("{v:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_a_point_inside_its_panel() {
        let rates = vec![1_500_000.0, 900_000.0, 0.0, 1_200_000.0];
        let panels = [
            Panel { title: "files/s", curves: vec![("create", rates), ("unlink", vec![1.0; 4])] },
            Panel { title: "blocks", curves: vec![("ratio", vec![f64::NAN, 1.0, 1.25, 1.2])] },
        ];
        let text = svg("age <a & b>", 1, &panels);
        assert!(text.contains("age &lt;a &amp; b&gt;") && text.contains(">1.60 M<"), "{text}");
        assert_eq!(text.matches("<polyline").count(), 3);
        let curves: Vec<Vec<(f64, f64)>> = text
            .lines()
            .filter_map(|line| line.strip_prefix("<polyline points=\"")?.split('"').next())
            .map(|points| points.split(' ').map(point).collect())
            .collect();
        assert_eq!(curves.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 3]);
        for (curve, panel) in curves.iter().zip([0.0, 0.0, 1.0]) {
            let (top, low) = (30.0 + HEIGHT * panel, 30.0 + HEIGHT * (panel + 1.0));
            for (x, y) in curve {
                assert!((LEFT..=WIDTH - RIGHT).contains(x) && (top..low).contains(y), "{x},{y}");
            }
        }
        // A larger value is higher up, and zero on the ground.
        assert!(curves[0][0].1 < curves[0][1].1 && curves[0][1].1 < curves[0][2].1);
        assert_eq!(curves[0][2].1, 30.0 + HEIGHT - BOTTOM);
    }

    fn point(text: &str) -> (f64, f64) {
        let (x, y) = text.split_once(',').expect("two numbers");
        (x.parse().expect("x"), y.parse().expect("y"))
    }

    #[test]
    fn nothing_and_one_round_can_be_drawn() {
        for values in [vec![], vec![5.0], vec![0.0, 0.0]] {
            let text = svg("x", 1, &[Panel { title: "t", curves: vec![("c", values)] }]);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        assert_eq!((scale_of(1.25), scale_of(99.0), scale_of(100.0)), (1.6, 100.0, 100.0));
    }
}
