//! Which encoding a file is in, and its bytes in one that the record reader can cut.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};
use encoding_rs_io::DecodeReaderBytesBuilder;

/// Bytes looked at for a mark, and for UTF-16 without one.
const HEAD: usize = 4096;

/// Bytes read at once.
const BLOCK: usize = 64 * 1024;

/// A file and how to read it.
#[derive(Clone, Debug)]
pub(super) struct Input {
    path: std::path::PathBuf,
    /// Of the file, in bytes.
    pub size: u64,
    /// What it is written in.
    pub encoding: &'static Encoding,
    /// Bytes of the byte order mark.
    mark: u64,
}

/// Its bytes, and how many of the file have been read to give them.
pub(super) struct Opened {
    pub bytes: Box<dyn Read + Send>,
    pub position: Arc<AtomicU64>,
    /// What the fields are in: UTF-8 where the bytes were transcoded.
    pub encoding: &'static Encoding,
}

impl Input {
    /// Looks at the whole file once, unless its first bytes or the caller say what it is.
    pub fn detect(path: &Path, forced: Option<&'static Encoding>) -> io::Result<Input> {
        // Before it is opened: a pipe would wait there for whoever writes into it.
        let metadata = std::fs::metadata(path)?;
        if !metadata.is_file() {
            let what = "not a file; it is read more than once, so write what comes into one first";
            return Err(io::Error::other(what));
        }
        let mut file = File::open(path)?;
        let mut head = Vec::new();
        file.by_ref().take(HEAD as u64).read_to_end(&mut head)?;
        let marked = Encoding::for_bom(&head);
        let (encoding, mark) = match (forced, marked) {
            // The mark of the same encoding is no letter either way.
            (Some(forced), Some((found, length))) if forced == found => (forced, length),
            (Some(forced), _) => (forced, 0),
            (None, Some((found, length))) => (found, length),
            (None, None) => match utf_16(&head) {
                Some(wide) => (wide, 0),
                None => {
                    file.seek(SeekFrom::Start(0))?;
                    (narrow(file)?, 0)
                }
            },
        };
        Ok(Input { path: path.to_owned(), size: metadata.len(), encoding, mark: mark as u64 })
    }

    /// From the first byte after the mark.
    pub fn open(&self) -> io::Result<Opened> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.mark))?;
        let position = Arc::new(AtomicU64::new(self.mark));
        let counted = Counted { file, position: position.clone() };
        if self.encoding.is_ascii_compatible() {
            return Ok(Opened { bytes: Box::new(counted), position, encoding: self.encoding });
        }
        // Quotes, separators and line ends are not single bytes in it.
        let mut builder = DecodeReaderBytesBuilder::new();
        let decoded = builder.encoding(Some(self.encoding)).bom_sniffing(false).build(counted);
        Ok(Opened { bytes: Box::new(decoded), position, encoding: UTF_8 })
    }
}

struct Counted {
    file: File,
    position: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Every other byte of Western text in UTF-16 is zero; no other text has any.
fn utf_16(head: &[u8]) -> Option<&'static Encoding> {
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|b| **b == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    let many = head.len() / 5;
    match (even > many, odd > many) {
        _ if head.len() < 4 => None,
        (false, true) => Some(UTF_16LE),
        (true, false) => Some(UTF_16BE),
        _ => None,
    }
}

/// UTF-8 where nearly all of it is: a few lines that are not (a file put together from two) are refused
/// each on its own. Else what the detector of Firefox guesses from the whole.
fn narrow(mut file: File) -> io::Result<&'static Encoding> {
    let (mut valid, mut invalid) = (0u64, 0u64);
    let mut block = vec![0; BLOCK];
    let mut carried = 0;
    loop {
        let count = file.read(&mut block[carried..])?;
        let end = carried + count;
        let rest = tally(&block[..end], count == 0, &mut valid, &mut invalid);
        if count == 0 {
            break;
        }
        block.copy_within(end - rest..end, 0);
        carried = rest;
    }
    if invalid == 0 || valid / 10 > invalid {
        return Ok(UTF_8);
    }
    file.seek(SeekFrom::Start(0))?;
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    loop {
        let count = file.read(&mut block)?;
        detector.feed(&block[..count], count == 0);
        if count == 0 {
            return Ok(detector.guess(None, Utf8Detection::Deny));
        }
    }
}

/// Counts letters beyond ASCII and what is none in UTF-8; gives how many bytes at the end may be the
/// beginning of a letter.
fn tally(mut bytes: &[u8], last: bool, valid: &mut u64, invalid: &mut u64) -> usize {
    let letters = |text: &[u8]| text.iter().filter(|b| **b >= 0xC2).count() as u64;
    loop {
        if bytes.is_ascii() {
            return 0;
        }
        match std::str::from_utf8(bytes) {
            Ok(_) => {
                *valid += letters(bytes);
                return 0;
            }
            Err(error) => {
                let (good, rest) = bytes.split_at(error.valid_up_to());
                *valid += letters(good);
                match error.error_len() {
                    None if !last => return rest.len(),
                    length => {
                        *invalid += 1;
                        bytes = rest.get(length.unwrap_or(rest.len())..).unwrap_or_default();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn detected(bytes: &[u8]) -> (&'static str, Vec<u8>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let input = Input::detect(file.path(), None).unwrap();
        let mut opened = input.open().unwrap();
        let mut read = Vec::new();
        opened.bytes.read_to_end(&mut read).unwrap();
        assert_eq!(opened.position.load(Ordering::Relaxed), bytes.len() as u64);
        (
            input.encoding.name(),
            opened.encoding.decode_without_bom_handling(&read).0.into_owned().into(),
        )
    }

    fn utf_16_of(text: &str, big: bool, mark: bool) -> Vec<u8> {
        let mark = if mark { "\u{feff}" } else { "" };
        let units = mark.encode_utf16().chain(text.encode_utf16());
        units.flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
    }

    #[test]
    fn encodings_are_told_apart() {
        let text =
            "E-Mail;Name\njose@example.com;José Müller Conceição\nana@example.com;Ação Ltda\n";
        let latin: Vec<u8> = encoding_rs::WINDOWS_1252.encode(text).0.into_owned();
        for (bytes, name) in [
            (text.as_bytes().to_vec(), "UTF-8"),
            (format!("\u{feff}{text}").into_bytes(), "UTF-8"),
            (latin, "windows-1252"),
            (utf_16_of(text, false, true), "UTF-16LE"),
            (utf_16_of(text, true, true), "UTF-16BE"),
            (utf_16_of(text, false, false), "UTF-16LE"),
            (utf_16_of(text, true, false), "UTF-16BE"),
        ] {
            let (found, read) = detected(&bytes);
            assert_eq!(found, name);
            assert_eq!(String::from_utf8(read).unwrap(), text, "{name}");
        }
    }

    /// One line of another program does not make the rest unreadable.
    #[test]
    fn a_few_broken_letters_leave_it_utf_8() {
        let mut bytes = "ação\n".repeat(50).into_bytes();
        bytes.extend(b"jos\xe9\n");
        assert_eq!(detected(&bytes).0, "UTF-8");
        assert_eq!(detected("é".repeat(BLOCK).as_bytes()).0, "UTF-8", "letters across blocks");
        assert_eq!(detected(b"").0, "UTF-8");
    }
}
