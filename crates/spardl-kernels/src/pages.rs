//! Large arrays on large pages.

/// A zero array that will be read and written all over: on huge pages where it is large, see [`prefer_huge_pages`].
pub fn zeroed(len: usize) -> Vec<f32> {
    let mut array = vec![0.0; len];
    prefer_huge_pages(&mut array);
    array
}

/// Asks the system to back a large array with huge pages, where it leaves that to the program (`madvise` on Linux). A hint: it
/// changes no contents and may do nothing. Call it before the array is first written.
///
/// The scattered reads and writes after a pass touch a page each; with 4 KiB pages most of them also miss the TLB.
pub fn prefer_huge_pages(array: &mut [f32]) {
    /// Smaller arrays are not worth a page of 2 MiB.
    const WORTH_IT: usize = 4 << 20;
    if size_of_val(array) >= WORTH_IT {
        advise(array);
    }
}

#[cfg(target_os = "linux")]
fn advise(array: &mut [f32]) {
    use rustix::mm::{Advice, madvise};
    const PAGE: usize = 4096;
    let start = array.as_mut_ptr().cast::<u8>();
    let skip = start.align_offset(PAGE);
    let Some(len) = size_of_val(array).checked_sub(skip) else {
        return;
    };
    // SAFETY: the range lies inside the array, starts at a page, and this advice never changes what the memory holds.
    // An error means that the system does not know the advice, which is as good as the hint being ignored.
    let _ = unsafe {
        madvise(
            start.add(skip).cast(),
            len / PAGE * PAGE,
            Advice::LinuxHugepage,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: &mut [f32]) {}

#[cfg(test)]
mod tests {
    use super::prefer_huge_pages;

    #[test]
    fn the_contents_stay_as_they_are() {
        for len in [0, 1, 1 << 10, (1 << 20) + 7, 3 << 20] {
            let mut array: Vec<f32> = (0..len).map(|i| i as f32).collect();
            prefer_huge_pages(&mut array[len.min(3)..]);
            assert!(
                array
                    .iter()
                    .enumerate()
                    .all(|(i, &value)| value == i as f32)
            );
        }
    }
}
