//! Fetches Apache Kafka into the cache folder, unless it is there, and says where. `./dev` runs it before the tests.

#![expect(clippy::print_stdout, reason = "it tells a script")]

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), rig::Error> {
    let folder = rig::kafka::jars().await?;
    println!("{}", folder.display());
    Ok(())
}
