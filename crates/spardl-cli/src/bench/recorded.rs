//! Gradients from a file: `.npy` or `.safetensors`.

use std::fs;
use std::path::Path;

use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use spardl_core::Layout;

use super::npy::{self, Npy};
use crate::memory;
use crate::output::bad_request;

/// The samples of a file, at least one, all of the layout's length.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) samples: Vec<Vec<f32>>,
    pub(super) layout: Layout,
}

/// Reads a file of gradients.
pub(super) fn read(path: &Path) -> anyhow::Result<Recorded> {
    load(path).map_err(|message| bad_request(format!("{}: {message}", path.display())))
}

fn load(path: &Path) -> Result<Recorded, String> {
    let parse = match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => npy,
        Some("safetensors") => safetensors,
        _ => return Err("expected a .npy or a .safetensors file".to_owned()),
    };
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    // The file and its values as f32, twice as long when they are 16 bits wide.
    if memory::available().is_some_and(|available| available / 3 < size) {
        let size = memory::readable(size);
        return Err(format!(
            "{size} are more than a third of the available memory"
        ));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
    usable(parse(&bytes)?)
}

/// Refuses what no worker can use.
fn usable(recorded: Recorded) -> Result<Recorded, String> {
    let finite = |sample: &Vec<f32>| sample.iter().all(|value| value.is_finite());
    if let Some(bad) = recorded.samples.iter().position(|sample| !finite(sample)) {
        return Err(format!("sample {bad} holds NaN or an infinity"));
    }
    if recorded.layout.is_empty() || recorded.samples.is_empty() {
        return Err("there are no elements in it".to_owned());
    }
    Ok(recorded)
}

fn npy(bytes: &[u8]) -> Result<Recorded, String> {
    let file = Npy::parse(bytes).map_err(|error| format!("not a .npy file: {error}"))?;
    let (samples, len) = match *file.shape {
        [len] => (1, len),
        [samples, len] => (samples, len),
        ref shape => {
            let message = "expected [elements] or [samples, elements]";
            return Err(format!("an array of shape {shape:?}: {message}"));
        }
    };
    if file.fortran_order && samples > 1 {
        let message = "an array in Fortran order: save np.ascontiguousarray(..) of it";
        return Err(message.to_owned());
    }
    let Some(count) = samples.checked_mul(len) else {
        return Err(format!("the file ends before {samples} x {len} values"));
    };
    let values = file.values(count)?;
    let len = u32::try_from(len).map_err(|_| format!("{len} elements are 2^32 or more"))?;
    let samples = values.chunks(len.max(1) as usize);
    Ok(Recorded {
        samples: samples.map(<[f32]>::to_vec).collect(),
        layout: Layout::flat(len),
    })
}

fn safetensors(bytes: &[u8]) -> Result<Recorded, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("not a .safetensors file: {error}"))?;
    let mut tensors = file.tensors();
    tensors.sort_by(|(a, _), (b, _)| a.cmp(b));
    let number = |name: &str| name.strip_prefix("gradient.")?.parse::<u64>().ok();
    if tensors.iter().all(|(name, _)| number(name).is_some()) {
        tensors.sort_by_key(|(name, _)| number(name));
        return samples(&tensors);
    }
    let mut gradient = Vec::new();
    for (name, tensor) in &tensors {
        gradient.extend(tensor_values(name, tensor)?);
    }
    let layers = tensors.iter().map(|(name, tensor)| {
        let name = name.clone();
        (name, tensor.shape().to_vec())
    });
    Ok(Recorded {
        samples: vec![gradient],
        layout: Layout::new(layers).map_err(|error| error.to_string())?,
    })
}

/// Every tensor is a gradient of its own.
fn samples(tensors: &[(String, TensorView<'_>)]) -> Result<Recorded, String> {
    let mut samples: Vec<Vec<f32>> = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let sample = tensor_values(name, tensor)?;
        let len = samples.first().map_or(sample.len(), Vec::len);
        if sample.len() != len {
            let got = sample.len();
            return Err(format!("{name} has {got} elements: expected {len} in all"));
        }
        samples.push(sample);
    }
    let shape = tensors
        .first()
        .map_or_else(|| vec![0], |(_, t)| t.shape().to_vec());
    Ok(Recorded {
        samples,
        layout: Layout::new([("gradient", shape)]).map_err(|error| error.to_string())?,
    })
}

fn tensor_values(name: &str, tensor: &TensorView<'_>) -> Result<Vec<f32>, String> {
    let data = tensor.data();
    Ok(match tensor.dtype() {
        Dtype::F32 => each(data, f32::from_le_bytes),
        Dtype::F64 => each(data, |bytes| f64::from_le_bytes(bytes) as f32),
        Dtype::F16 => each(data, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Dtype::BF16 => each(data, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        other => {
            let expected = "expected F32, F16, BF16 or F64";
            return Err(format!("{name} has values of type {other:?}: {expected}"));
        }
    })
}

fn each<const N: usize>(data: &[u8], convert: impl Fn([u8; N]) -> f32) -> Vec<f32> {
    let (values, _) = data.as_chunks::<N>();
    values.iter().map(|bytes| convert(*bytes)).collect()
}

/// Any bytes as a .npy file.
pub(crate) fn any_npy(bytes: &[u8]) -> Result<(), String> {
    npy(bytes).and_then(usable).map(|recorded| hold(&recorded))
}

/// Any bytes as a .safetensors file.
pub(crate) fn any_safetensors(bytes: &[u8]) -> Result<(), String> {
    safetensors(bytes)
        .and_then(usable)
        .map(|recorded| hold(&recorded))
}

/// What the bench relies on.
fn hold(recorded: &Recorded) {
    let len = recorded.layout.len() as usize;
    assert!(len > 0 && !recorded.samples.is_empty());
    assert!(recorded.samples.iter().all(|sample| sample.len() == len));
}

/// Files of all types and shapes that are read.
pub(crate) fn npy_examples() -> Vec<Vec<u8>> {
    vec![
        npy::file("<f4", "2, 3", &[1; 24]),
        npy::file("<f8", "4,", &[1; 32]),
        npy::file("<f2", "1, 5", &[1; 10]),
        npy::file("<i4", "2,", &[1; 8]),
        npy::file("<f4", "1, 2, 3", &[1; 24]),
    ]
}

/// Layers, and numbered samples.
pub(crate) fn safetensors_examples() -> Vec<Vec<u8>> {
    let zeros = [0; 16];
    let layers: &[(&str, Dtype, &[usize], &[u8])] = &[
        ("a", Dtype::F32, &[2, 2], &zeros),
        ("b", Dtype::BF16, &[3], &zeros[..6]),
        ("c", Dtype::F64, &[], &zeros[..8]),
    ];
    let samples: &[(&str, Dtype, &[usize], &[u8])] = &[
        ("gradient.0", Dtype::F16, &[4], &zeros[..8]),
        ("gradient.1", Dtype::F32, &[4], &zeros),
    ];
    vec![safetensors_file(layers), safetensors_file(samples)]
}

fn safetensors_file(tensors: &[(&str, Dtype, &[usize], &[u8])]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, dtype, shape, data)| {
        let view = TensorView::new(*dtype, shape.to_vec(), data);
        (*name, view.expect("as many bytes as the shape needs"))
    });
    safetensors::serialize(views, None).expect("valid tensors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_samples_of_any_float_type() {
        let expected = [vec![1.0, -2.0, 0.5], vec![3.0, 4.0, 0.0]];
        let values = || [1.0f32, -2.0, 0.5, 3.0, 4.0, 0.0].into_iter();
        let bytes = |value: f32| value.to_le_bytes();
        let files = [
            npy::file("<f4", "2, 3", &values().flat_map(bytes).collect::<Vec<_>>()),
            npy::file(
                "<f8",
                "2, 3",
                &values()
                    .flat_map(|v| f64::from(v).to_le_bytes())
                    .collect::<Vec<_>>(),
            ),
            npy::file(
                "<f2",
                "2, 3",
                &values()
                    .flat_map(|v| f16::from_f32(v).to_le_bytes())
                    .collect::<Vec<_>>(),
            ),
        ];
        for file in files {
            let recorded = npy(&file).unwrap();
            assert_eq!(recorded.samples, expected);
            assert_eq!(recorded.layout.len(), 3);
        }
        let single = npy::file("<f4", "6,", &values().flat_map(bytes).collect::<Vec<_>>());
        let single = npy(&single).unwrap();
        assert_eq!(single.samples, [values().collect::<Vec<_>>()]);
    }

    #[test]
    fn tensors_are_layers_or_numbered_samples() {
        let two = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
        let one = bf16::from_f32(3.0).to_le_bytes();
        let layers = [
            ("b", Dtype::BF16, [1usize].as_slice(), one.as_slice()),
            ("a", Dtype::F32, &[2, 1], &two),
        ];
        let recorded = safetensors(&safetensors_file(&layers)).unwrap();
        assert_eq!(recorded.samples, [[1.0, 2.0, 3.0]]);
        assert_eq!(recorded.layout.parts().len(), 2);
        assert_eq!(recorded.layout.parts()[0].shape, [2, 1]);

        let other = f16::from_f32(5.0).to_le_bytes();
        let samples = [
            (
                "gradient.10",
                Dtype::BF16,
                [1usize].as_slice(),
                one.as_slice(),
            ),
            ("gradient.9", Dtype::F16, &[1], &other),
        ];
        let recorded = safetensors(&safetensors_file(&samples)).unwrap();
        assert_eq!(recorded.samples, [[5.0], [3.0]]);
    }

    #[test]
    fn bad_files_say_what_was_expected() {
        let message = |result: Result<Recorded, String>| result.map(|_| ()).unwrap_err();
        let integers = npy::file("<i4", "2,", &[0; 8]);
        assert!(message(npy(&integers)).contains("expected <f4, <f2 or <f8"));
        let cube = npy::file("<f4", "1, 1, 1", &[0; 4]);
        assert!(message(npy(&cube)).contains("expected [elements] or [samples, elements]"));
        for shape in ["1000,", "9223372036854775808, 5"] {
            let short = npy::file("<f4", shape, &[0; 100]);
            assert!(message(npy(&short)).contains("the file ends before"));
        }
        assert!(message(npy(b"hello")).contains("not a .npy file"));
        assert!(message(safetensors(b"hello")).contains("not a .safetensors file"));
        let wrong = [("w", Dtype::I16, [1usize].as_slice(), [0u8; 2].as_slice())];
        let wrong = safetensors_file(&wrong);
        assert!(message(safetensors(&wrong)).contains("expected F32, F16, BF16 or F64"));
        let two = [0u8; 4];
        let lens = [
            ("gradient.0", Dtype::F16, [1usize].as_slice(), &two[..2]),
            ("gradient.1", Dtype::F16, &[2], &two),
        ];
        let lens = safetensors_file(&lens);
        assert!(message(safetensors(&lens)).contains("expected 1 in all"));
    }
}
