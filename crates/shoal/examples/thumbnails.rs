//! Thumbnails: small images are derived from a directory of large ones and written in batches; what
//! is up to date is left alone.
//!
//! ```sh
//! cargo run -p shoal --example thumbnails [[--connect] VOLUME [DIRECTORY]]
//! ```
//!
//! Images are PPM files (`P6`, 8 bits), so that the example needs no decoder. Thumbnails are in
//! `.thumbnails` beside them. A thumbnail has the modification time of the image it was made from,
//! so equal times mean that it is up to date. "Newer than the image" would not do: an image that
//! changes while its thumbnail is made is older than that.

mod common;

use shoal::{Dir, Result};
use std::collections::HashMap;
use std::io;
use std::time::SystemTime;

/// Size of a thumbnail in pixels, in each direction, at most.
const SIDE: usize = 16;
/// Thumbnails in a batch. Their contents are not in its record in the journal, so some thousand
/// fit; as many have to be in memory.
const BATCH: usize = 64;
const PICTURES: usize = 100;

/// An image of 24 bits a pixel.
struct Image {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Image {
    fn decode(bytes: &[u8]) -> io::Result<Image> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a PPM file of 8 bits");
        // Four words, each followed by one space: "P6 640 480 255 ", then the pixels.
        let mut words = bytes.splitn(5, u8::is_ascii_whitespace);
        let number = |word: Option<&[u8]>| -> io::Result<usize> {
            let text = word.and_then(|word| std::str::from_utf8(word).ok());
            text.and_then(|text| text.parse().ok()).ok_or_else(invalid)
        };
        if words.next() != Some(b"P6") {
            return Err(invalid());
        }
        let (width, height) = (number(words.next())?, number(words.next())?);
        let depth = number(words.next())?;
        let (pixels, rest) = words.next().unwrap_or_default().as_chunks::<3>();
        let whole = width.checked_mul(height) == Some(pixels.len()) && rest.is_empty();
        if depth != 255 || !whole || pixels.is_empty() {
            return Err(invalid());
        }
        Ok(Image { width, height, pixels: pixels.to_vec() })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = format!("P6\n{} {}\n255\n", self.width, self.height).into_bytes();
        bytes.extend_from_slice(self.pixels.as_flattened());
        bytes
    }

    /// A smaller image, each of its pixels the mean of those it covers.
    fn scaled_down(&self) -> Image {
        let step = self.width.max(self.height).div_ceil(SIDE).max(1);
        let (width, height) = (self.width.div_ceil(step), self.height.div_ceil(step));
        let mean = |at: usize| {
            let (left, top) = (at % width * step, at / width * step);
            let (mut sum, mut count) = ([0; 3], 0);
            for y in top..(top + step).min(self.height) {
                for pixel in &self.pixels[y * self.width..][left..(left + step).min(self.width)] {
                    sum = [0, 1, 2].map(|c| sum[c] + u64::from(pixel[c]));
                    count += 1;
                }
            }
            sum.map(|sum| (sum / count) as u8)
        };
        Image { width, height, pixels: (0..width * height).map(mean).collect() }
    }
}

/// Makes the thumbnails that are missing or not up to date. Returns their number.
fn update(pictures: &Dir) -> Result<usize> {
    let thumbnails = pictures.create_dir_all(".thumbnails")?;
    let mut made: HashMap<Vec<u8>, SystemTime> = HashMap::new();
    for entry in thumbnails.entries()? {
        let entry = entry?;
        made.insert(entry.name().to_vec(), entry.metadata()?.modified());
    }
    let mut stale = Vec::new();
    for entry in pictures.entries()? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let is_picture = metadata.is_file() && entry.name().ends_with(b".ppm");
        // Its time is taken before it is read: a change after that makes the times differ.
        if is_picture && made.get(entry.name()) != Some(&metadata.modified()) {
            stale.push((entry.name().to_vec(), metadata.modified()));
        }
    }
    let mut count = 0;
    for group in stale.chunks(BATCH) {
        let mut made = Vec::new();
        for (name, modified) in group {
            match small(pictures, name) {
                Ok(bytes) => made.push((name, modified, bytes)),
                // Removed meanwhile, or no image that we know: the others do not suffer for it.
                Err(error) => eprintln!("{}: {error}", name.escape_ascii()),
            }
        }
        // New files take the place of the old: a reader gets all of one or all of the other.
        thumbnails
            .batch(|batch| made.iter().try_for_each(|(name, _, bytes)| batch.write(name, bytes)))?;
        // After a crash before this the times differ, and they are made again.
        for (name, modified, _) in &made {
            thumbnails.set_times(name, **modified, **modified)?;
        }
        count += made.len();
    }
    Ok(count)
}

/// The thumbnail of a picture.
fn small(pictures: &Dir, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(Image::decode(&pictures.read(name)?)?.scaled_down().encode())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = common::Place::from_arguments("thumbnails");
    let volume = place.open()?;
    let pictures = place.directory(&volume, 0, "pictures")?;
    let is_empty = pictures.entries()?.next().is_none();
    if is_empty {
        let shades = |n: usize| (0..64 * 48).map(move |at| [at as u8, (at / 64) as u8, n as u8]);
        for n in 0..PICTURES {
            let image = Image { width: 64, height: 48, pixels: shades(n).collect() };
            pictures.write(format!("{n:03}.ppm"), image.encode())?;
        }
    }

    let first = update(&pictures)?;
    let again = update(&pictures)?;
    println!("{first} thumbnails made, then {again}");
    assert_eq!(again, 0, "they are up to date");
    if is_empty {
        assert_eq!(first, PICTURES);
        let thumbnail = Image::decode(&pictures.read(".thumbnails/042.ppm")?)?;
        assert_eq!((thumbnail.width, thumbnail.height), (16, 12));
        assert!(thumbnail.pixels.iter().all(|[_, _, blue]| *blue == 42), "the means are right");

        // One picture changes.
        let black = Image { width: 64, height: 48, pixels: vec![[0; 3]; 64 * 48] };
        pictures.write("007.ppm", black.encode())?;
        pictures.write("none.ppm", b"P6 no image")?;
        assert_eq!(update(&pictures)?, 1);
        let thumbnail = Image::decode(&pictures.read(".thumbnails/007.ppm")?)?;
        assert!(thumbnail.pixels.iter().all(|pixel| *pixel == [0; 3]));
    }
    volume.sync()?;
    Ok(())
}
