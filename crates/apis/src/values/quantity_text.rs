//! Reading and printing of quantities.

use super::quantity::{Format, NANOS, ParseQuantityError};

/// Parsed form of a text.
pub(super) struct Parsed {
    pub(super) nanos: i128,
    pub(super) format: Format,
    /// Whether the text itself is what is printed.
    pub(super) keep_text: bool,
    /// Whether [`odd_scaled`] applies.
    pub(super) odd_rounding: bool,
}

/// Decimal suffixes by power of ten.
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

/// Binary suffixes by power of two.
const BINARY: [(&str, u32); 6] = [
    ("Ki", 10),
    ("Mi", 20),
    ("Gi", 30),
    ("Ti", 40),
    ("Pi", 50),
    ("Ei", 60),
];

/// Number of digits that a 64-bit integer can always store.
const SAFE_DIGITS: usize = 18;

enum Suffix {
    Decimal(i32),
    Exponent(i32),
    Binary(u32),
}

fn suffix(text: &str) -> Option<Suffix> {
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == text) {
        return Some(Suffix::Decimal(*power));
    }
    if let Some((_, power)) = BINARY.iter().find(|(name, _)| *name == text) {
        return Some(Suffix::Binary(*power));
    }
    let exponent: i32 = text.strip_prefix(['e', 'E'])?.parse().ok()?;
    Some(Suffix::Exponent(exponent))
}

fn split_at_non_digit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

/// 10 to a power that fits 128 bits.
fn ten_to(power: u32) -> Option<i128> {
    10_i128.checked_pow(power)
}

/// `digits * 10^power` nano-units, rounded up; saturates.
fn decimal_nanos(digits: &str, power: i64) -> i128 {
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let shift = power + 9;
    if shift >= 0 {
        let factor = u32::try_from(shift).ok().and_then(ten_to);
        return digits
            .parse::<i128>()
            .ok()
            .zip(factor)
            .and_then(|(d, f)| d.checked_mul(f))
            .unwrap_or(i128::MAX);
    }
    // Drops the digits below a nano and rounds up: a positive request must not become zero.
    let cut = usize::try_from(shift.unsigned_abs()).unwrap_or(usize::MAX);
    match digits.len().checked_sub(cut) {
        Some(kept) => {
            let (whole, rest) = digits.split_at(kept);
            let whole = if whole.is_empty() {
                Ok(0)
            } else {
                whole.parse::<i128>()
            };
            let up = i128::from(rest.bytes().any(|b| b != b'0'));
            whole.map_or(i128::MAX, |whole| whole.saturating_add(up))
        }
        None => 1,
    }
}

pub(super) fn parse(text: &str) -> Result<Parsed, ParseQuantityError> {
    read(text).ok_or_else(|| ParseQuantityError {
        given: text.to_owned(),
        nearest: nearest(text),
    })
}

/// A number cut into its digits.
struct Number<'a> {
    negative: bool,
    /// Digits before the point without leading zeros; `0` when there are none.
    whole: &'a str,
    /// Digits after the point.
    fraction: &'a str,
    /// Whether any digit was written.
    digits_written: bool,
}

impl<'a> Number<'a> {
    /// The number at the start of the text, and what follows it.
    fn split(text: &'a str) -> (Self, &'a str) {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (written, rest) = split_at_non_digit(unsigned);
        let (fraction, rest) = rest
            .strip_prefix('.')
            .map_or(("", rest), split_at_non_digit);
        let whole = match written.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let digits_written = !(written.is_empty() && fraction.is_empty());
        (
            Self {
                negative,
                whole,
                fraction,
                digits_written,
            },
            rest,
        )
    }

    fn digits(&self) -> String {
        [self.whole, self.fraction].concat()
    }
}

fn read(text: &str) -> Option<Parsed> {
    if text.is_empty() {
        return None;
    }
    let (number, rest) = Number::split(text);
    let parsed = match suffix(rest)? {
        Suffix::Binary(power) => read_binary(&number, power)?,
        Suffix::Decimal(power) => read_decimal(&number, power, Format::DecimalSi)?,
        Suffix::Exponent(power) => read_decimal(&number, power, Format::DecimalExponent)?,
    };
    Some(if number.negative {
        Parsed {
            nanos: -parsed.nanos,
            ..parsed
        }
    } else {
        parsed
    })
}

/// The absolute amount of a number with a decimal suffix or exponent.
fn read_decimal(number: &Number<'_>, power: i32, format: Format) -> Option<Parsed> {
    let digits = number.digits();
    let places = i32::try_from(number.fraction.len()).ok()?;
    let scale = power.checked_sub(places)?;
    let nanos = decimal_nanos(&digits, i64::from(scale));
    // Go stores such amounts in 64 bits, and their text if it looks canonical.
    let simple = digits.len() <= SAFE_DIGITS && scale >= -9;
    if !simple && !number.digits_written {
        return None;
    }
    let tidy = scale % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0');
    let keep_text = (simple && tidy) || nanos == i128::MAX;
    Some(Parsed {
        nanos,
        format,
        keep_text,
        odd_rounding: number.negative && !simple,
    })
}

/// The absolute amount of a number with a binary suffix.
fn read_binary(number: &Number<'_>, power: u32) -> Option<Parsed> {
    let digits = number.digits();
    // Ten bits are some three digits; Go keeps what surely fits into 15 digits in 64 bits.
    let spent = usize::try_from(power).map_or(SAFE_DIGITS, |power| power * 3 / 10 + 1);
    let simple = number.fraction.is_empty() && digits.len() + spent <= 15;
    if !simple && !number.digits_written {
        return None;
    }
    let max = i128::from(i64::MAX) * NANOS;
    // digits * 2^power / 10^places, in nano-units, rounded up; more than 2^63-1 units is cut there.
    let product = digits
        .parse::<i128>()
        .ok()
        .and_then(|n| n.checked_mul((1_i128 << power) * NANOS));
    let places = number.fraction.len();
    let nanos = match (product, u32::try_from(places).ok().and_then(ten_to)) {
        (Some(product), Some(divisor)) => product / divisor + i128::from(product % divisor != 0),
        _ => decimal_nanos(
            &doubled(&digits, power),
            i64::try_from(places).map_or(i64::MIN / 2, |places| -places),
        ),
    }
    .min(max);
    let format = if (1..NANOS).contains(&nanos) {
        Format::DecimalSi
    } else {
        Format::BinarySi
    };
    let tidy = digits.parse::<i64>().is_ok_and(|n| n % 8 != 0);
    Some(Parsed {
        nanos,
        format,
        keep_text: simple && tidy,
        odd_rounding: number.negative && !simple && nanos < max,
    })
}

/// The decimal digits of `digits * 2^power`, for numbers longer than 128 bits.
fn doubled(digits: &str, power: u32) -> String {
    let mut reversed: Vec<u8> = digits
        .bytes()
        .rev()
        .map(|digit| digit.wrapping_sub(b'0'))
        .collect();
    for _ in 0..power {
        let mut carry = 0;
        for digit in &mut reversed {
            let twice = *digit * 2 + carry;
            (*digit, carry) = (twice % 10, twice / 10);
        }
        if carry > 0 {
            reversed.push(carry);
        }
    }
    reversed
        .into_iter()
        .rev()
        .map(|digit| char::from(b'0' + digit))
        .collect()
}

/// A guess at what was meant: Kubernetes suffixes are case-sensitive and have no `B`.
fn nearest(text: &str) -> Option<String> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
        .unwrap_or(text.len());
    let (number, unit) = text.trim().split_at_checked(end)?;
    let unit = unit.trim().to_ascii_lowercase();
    let unit = match unit.trim_end_matches('b') {
        "k" => "k",
        "m" => "M",
        "g" => "G",
        "t" => "T",
        "p" => "P",
        "ki" => "Ki",
        "mi" => "Mi",
        "gi" => "Gi",
        "ti" => "Ti",
        "pi" => "Pi",
        "ei" => "Ei",
        "" => "",
        _ => return None,
    };
    let guess = format!("{number}{unit}");
    read(&guess).map(|_| guess)
}

/// Rounding of negative amounts that Go stores in arbitrary precision.
///
/// # Source
/// apimachinery truncates toward zero and adds one, and wraps at 64 bits of nano-units. Such quantities do not occur in
/// practice; the result is the same so that comparisons with Karpenter need no exceptions.
pub(super) fn odd_scaled(nanos: i128, unit: i128) -> i64 {
    let bytes = nanos.to_le_bytes();
    let low = bytes
        .first_chunk::<8>()
        .map_or(0, |low| i64::from_le_bytes(*low));
    let wrapped = i128::from(low);
    let scaled = wrapped / unit + i128::from(wrapped % unit != 0);
    i64::try_from(scaled).unwrap_or(i64::MAX)
}

pub(super) fn canonical(nanos: i128, format: Format) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    if format == Format::BinarySi
        && nanos % NANOS == 0
        && nanos.unsigned_abs() >= NANOS.unsigned_abs() * 1024
    {
        let mut units = nanos / NANOS;
        let mut name = "";
        for (suffix, _) in BINARY {
            if units % 1024 != 0 {
                break;
            }
            units /= 1024;
            name = suffix;
        }
        return format!("{units}{name}");
    }
    let mut amount = nanos;
    let mut power = -9;
    while amount % 1000 == 0 && (power < 18 || format == Format::DecimalExponent) {
        amount /= 1000;
        power += 3;
    }
    match format {
        Format::DecimalExponent if power == 0 => amount.to_string(),
        Format::DecimalExponent => format!("{amount}e{power}"),
        Format::DecimalSi | Format::BinarySi => {
            let name = DECIMAL
                .iter()
                .find(|(_, p)| *p == power)
                .map_or("", |(name, _)| name);
            format!("{amount}{name}")
        }
    }
}
