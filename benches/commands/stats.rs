//! Medians and their spread.

use std::fmt;

/// A median and half the distance between the quartiles.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    pub median: f64,
    pub spread: f64,
}

impl Summary {
    /// Of at least one figure.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self {
            median: quantile(&sorted, 0.5),
            spread: (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / 2.0,
        }
    }

    /// The median alone, in three digits or more.
    pub fn median(self) -> String {
        format!("{:.*}", self.digits(), self.median)
    }

    fn digits(self) -> usize {
        match self.median {
            median if median < 10.0 => 2,
            median if median < 100.0 => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ± {:.*}", self.median(), self.digits(), self.spread)
    }
}

/// Between neighbours, in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = share * (sorted.len() - 1) as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor())
}

/// The p50, p99 and p99.9 of some latencies in ns, in µs.
pub fn percentiles(latencies_ns: &mut [u32]) -> [f64; 3] {
    latencies_ns.sort_unstable();
    [0.5, 0.99, 0.999].map(|share| {
        let at = (share * latencies_ns.len() as f64).ceil() as usize;
        f64::from(latencies_ns[at.saturating_sub(1)]) / 1_000.0
    })
}
