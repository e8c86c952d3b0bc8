//! NumPy's `.npy` files, as far as gradients need them: little-endian numbers of one type in a plain array.
//!
//! The header is a Python dictionary of three entries, `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
//! It is read strictly, in time linear in its length: a file may come from anywhere.

use half::f16;

/// A `.npy` file of numbers.
#[derive(Debug)]
pub(super) struct Npy<'a> {
    /// The type of the values, as NumPy writes it: `<f4`.
    descr: &'a str,
    pub(super) fortran_order: bool,
    pub(super) shape: Vec<u64>,
    data: &'a [u8],
}

/// The longest header that is looked at, in bytes, and the most dimensions: NumPy itself has at most 64.
const LIMITS: (usize, usize) = (1 << 16, 64);

impl<'a> Npy<'a> {
    /// Reads the header.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, String> {
        let (header, data) = split(bytes)?;
        let mut reader = Reader { rest: header };
        let mut descr = None;
        let mut fortran_order = None;
        let mut shape = None;
        reader.expect("{")?;
        while !reader.take("}") {
            let key = reader.string()?;
            reader.expect(":")?;
            match key {
                "descr" => descr = Some(reader.string()?),
                "fortran_order" => fortran_order = Some(reader.boolean()?),
                "shape" => shape = Some(reader.numbers()?),
                _ => return Err("its header has an unknown entry".to_owned()),
            }
            if !reader.take(",") {
                reader.expect("}")?;
                break;
            }
        }
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) => Ok(Self {
                descr,
                fortran_order,
                shape,
                data,
            }),
            _ => Err("its header lacks descr, fortran_order or shape".to_owned()),
        }
    }

    /// The first `count` values, if the file has as many.
    pub(super) fn values(&self, count: u64) -> Result<Vec<f32>, String> {
        match self.descr {
            "<f4" => self.each(count, f32::from_le_bytes),
            "<f8" => self.each(count, |bytes| f64::from_le_bytes(bytes) as f32),
            "<f2" => self.each(count, |bytes| f16::from_le_bytes(bytes).to_f32()),
            other => Err(format!(
                "values of type '{}': expected <f4, <f2 or <f8",
                other.escape_default()
            )),
        }
    }

    fn each<const N: usize>(
        &self,
        count: u64,
        convert: impl Fn([u8; N]) -> f32,
    ) -> Result<Vec<f32>, String> {
        let (values, _) = self.data.as_chunks::<N>();
        let values = usize::try_from(count)
            .ok()
            .and_then(|count| values.get(..count));
        let Some(values) = values else {
            return Err(format!("the file ends before {count} values"));
        };
        Ok(values.iter().map(|bytes| convert(*bytes)).collect())
    }
}

/// The header's text and what follows it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let (len, rest) = match bytes {
        [0x93, b'N', b'U', b'M', b'P', b'Y', 1, _, a, b, rest @ ..] => {
            (u32::from(u16::from_le_bytes([*a, *b])), rest)
        }
        [
            0x93,
            b'N',
            b'U',
            b'M',
            b'P',
            b'Y',
            2 | 3,
            _,
            a,
            b,
            c,
            d,
            rest @ ..,
        ] => (u32::from_le_bytes([*a, *b, *c, *d]), rest),
        _ => return Err("it does not begin like one".to_owned()),
    };
    let parts = rest.split_at_checked(len as usize);
    let Some((header, data)) = parts.filter(|(header, _)| header.len() <= LIMITS.0) else {
        return Err(format!("its header of {len} bytes is too long"));
    };
    let header = str::from_utf8(header).map_err(|_| "its header is not text".to_owned())?;
    Ok((header, data))
}

/// What is left of a header.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Whether `word` comes next; if so it is passed over.
    fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        match self.take(word) {
            true => Ok(()),
            false => Err(format!("its header lacks a '{word}'")),
        }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = match self.take("'") {
            true => '\'',
            false => {
                self.expect("\"")?;
                '"'
            }
        };
        let Some((string, rest)) = self.rest.split_once(quote) else {
            return Err("a string in its header does not end".to_owned());
        };
        self.rest = rest;
        Ok(string)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        match (self.take("True"), self.take("False")) {
            (true, false) => Ok(true),
            (false, true) => Ok(false),
            _ => Err("its header's fortran_order is not True or False".to_owned()),
        }
    }

    /// A tuple of numbers.
    fn numbers(&mut self) -> Result<Vec<u64>, String> {
        self.expect("(")?;
        let mut numbers = Vec::new();
        while !self.take(")") {
            numbers.push(self.number()?);
            if numbers.len() > LIMITS.1 {
                return Err(format!("it has more than {} dimensions", LIMITS.1));
            }
            if !self.take(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(numbers)
    }

    fn number(&mut self) -> Result<u64, String> {
        let rest = self.rest.trim_start();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        self.rest = rest;
        number
            .parse()
            .map_err(|_| "its header's shape is not of numbers".to_owned())
    }
}

/// A file of `data` with a header of version 1.
pub(super) fn file(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

#[cfg(test)]
mod tests {
    use npyz::WriterBuilder;

    use super::*;

    /// What another implementation writes.
    fn written(shape: &[u64], values: Vec<f32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype().shape(shape);
        let mut writer = options.writer(&mut bytes).begin_nd().unwrap();
        writer.extend(values).unwrap();
        writer.finish().unwrap();
        bytes
    }

    #[test]
    fn what_others_write_is_read() {
        let bytes = written(&[2, 3], vec![1.0, -2.0, 0.5, 3.0, 4.0, 0.0]);
        let npy = Npy::parse(&bytes).unwrap();
        assert_eq!(npy.shape, [2, 3]);
        assert!(!npy.fortran_order);
        assert_eq!(npy.values(6).unwrap(), [1.0, -2.0, 0.5, 3.0, 4.0, 0.0]);
        assert!(npy.values(7).unwrap_err().contains("ends before 7"));
        let bytes = written(&[], vec![1.0]);
        assert!(Npy::parse(&bytes).unwrap().shape.is_empty());
    }

    #[test]
    fn other_spellings_of_python_are_read() {
        let header = br#" { "shape" :(4 ,) ,"fortran_order":True, "descr": "<f8" }  "#;
        let mut bytes = b"\x93NUMPY\x03\x00".to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        bytes.extend([1.0f64, 2.0, 3.0, 4.0].map(f64::to_le_bytes).concat());
        let npy = Npy::parse(&bytes).unwrap();
        assert_eq!((npy.shape.as_slice(), npy.fortran_order), (&[4][..], true));
        assert_eq!(npy.values(4).unwrap(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn a_hostile_header_is_refused_at_once() {
        let shapes = [
            "[".repeat(40),
            "1, 5, 18446744073709551616".to_owned(),
            "-1".to_owned(),
            "1, ".repeat(65),
            "1".repeat(60_000),
        ];
        for shape in shapes {
            let bytes = file("<f4", &shape, &[]);
            assert!(Npy::parse(&bytes).is_err(), "{shape}");
        }
        for cut in 0..60 {
            let bytes = file("<f4", "1", &[]);
            assert!(Npy::parse(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
