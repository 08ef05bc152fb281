//! A real private Kafka: started, killed, and started again on its ports and data.

use rig::{Kafka, KafkaOptions};
use tokio::net::TcpStream;

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";

#[tokio::test]
async fn it_comes_back_on_its_port_with_its_data() {
    if std::env::var_os("HOLDFAST_NO_KAFKA").is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut kafka = Kafka::start(folder.path(), KafkaOptions::default()).await.unwrap();
    let servers = kafka.servers();
    assert_eq!(servers, kafka.addr(0).to_string());
    let at = ["--bootstrap-server", &servers];
    kafka.tool(TOPICS, &[&at[..], &["--create", "--topic", "orders"]].concat()).await.unwrap();
    let pid = kafka.process(0).unwrap().pid();

    kafka.kill(0).await.unwrap();
    assert!(TcpStream::connect(kafka.addr(0)).await.is_err());
    drop(kafka);
    let mut kafka = Kafka::start(folder.path(), KafkaOptions::default()).await.unwrap();
    assert_eq!(kafka.servers(), servers);
    assert_ne!(kafka.process(0).unwrap().pid(), pid);
    let listed = kafka.tool(TOPICS, &[&at[..], &["--list"]].concat()).await.unwrap();
    assert!(listed.lines().any(|line| line == "orders"), "{listed}");
    let refused = kafka.tool(TOPICS, &[&at[..], &["--no-such-option"]].concat()).await;
    assert!(matches!(refused, Err(rig::Error::Failed { .. })), "{refused:?}");
    kafka.stop().await.unwrap();
    assert!(TcpStream::connect(kafka.addr(0)).await.is_err());
}
