//! Serves the pages of a file over TCP, each connection a task: a request is the number of a page (8 bytes, little
//! endian), the reply is the page (4096 bytes), or the end of the connection for a page that does not exist.
//!
//! `cargo run --release --features tokio --example page_server -- FILE [ADDRESS]`

use iopath::{AlignedBuf, AsyncVolume, BatchOptions, Options, Volume};
use std::error::Error;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PAGE: usize = 4096;

/// Serves one client. Its page is read from the device into the buffer that is sent.
async fn serve(mut client: TcpStream, volume: AsyncVolume) -> io::Result<()> {
    let mut page = AlignedBuf::new(PAGE).map_err(io::Error::other)?;
    loop {
        let number = match client.read_u64_le().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            number => number?,
        };
        let offset = number.checked_mul(PAGE as u64).ok_or(io::ErrorKind::InvalidInput)?;
        let (read, buffer) = volume.read_at(page, offset).await;
        page = buffer;
        if read? < PAGE {
            return Ok(());
        }
        client.write_all(&page).await?;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: page_server FILE [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:4096".to_owned());
    let volume = Volume::open(path, &Options::new().depth(256))?;
    let volume = AsyncVolume::on_tokio(&volume, &BatchOptions::new(256, 0))?;
    let listener = TcpListener::bind(address).await?;
    println!("{} bytes on {}", volume.volume().size_bytes(), listener.local_addr()?);
    loop {
        let (client, from) = listener.accept().await?;
        client.set_nodelay(true)?;
        let volume = volume.clone();
        tokio::spawn(async move {
            if let Err(error) = serve(client, volume).await {
                eprintln!("{from}: {error}");
            }
        });
    }
}
