//! Images in a real object store, read by both extractors, alone and under the worker with a real database.

use std::io::Cursor;
use std::time::Duration;

use image::{GrayImage, ImageFormat, Luma};
use objects::Bucket;
use schedule::extract::Extractor;
use schedule::extract::captures::{Captures, MAX_IMAGE_BYTES};
use schedule::extract::command::Command;
use schedule::worker::{Extract as _, ExtractError, Session, Settings, Worker};
use testkit::{EmbeddedStore, eventually};
use uuid::Uuid;

use crate::accuracy::sheet;
use crate::ocr;

const USER: i64 = 42;

fn png(picture: &GrayImage) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

async fn put(bucket: &Bucket, key: &str, body: Vec<u8>) {
    bucket.put(key, "image/png", body.into()).await.unwrap();
}

fn captures(bucket: &Bucket, extractor: Extractor) -> Captures {
    Captures { bucket: bucket.clone(), extractor, timezone: "Europe/Berlin".to_owned() }
}

fn command(script: &str) -> Extractor {
    let command = ["sh", "-c", script].map(str::to_owned);
    Extractor::Command(Command::new(&command, Duration::from_secs(30), 0.7).unwrap())
}

fn session(images: &[&str]) -> Session {
    let images = images.iter().map(|key| (*key).to_owned()).collect();
    Session { id: Uuid::now_v7(), user_id: USER, images }
}

#[tokio::test]
async fn both_extractors_read_what_the_store_has() {
    let store = EmbeddedStore::start().await.unwrap();
    let bucket = Bucket::new(store.address()).unwrap();
    put(&bucket, "captures/a/1.png", png(&sheet().draw())).await;
    put(&bucket, "captures/a/2.png", b"second".to_vec()).await;

    let reader = captures(&bucket, ocr(&["eng"]).await);
    let seen = reader.extract(&session(&["captures/a/1.png"])).await.unwrap();
    assert_eq!((seen.entries.len(), seen.timezone.as_str()), (6, "Europe/Berlin"));

    // The command tells what it was given: how many bytes, in a folder that is open for whom.
    let told = tempfile::tempdir().unwrap();
    let script = format!(
        r#"paths=$(grep -o '"path":"[^"]*' | cut -d '"' -f 4)
        for path in $paths; do echo "$path $(wc -c < "$path") $(stat -c %a "$(dirname "$path")")"; done > {}/told
        echo '{{"schedule_date":"2026-11-16","entries":[{{"start":"8-16"}}]}}'"#,
        told.path().display()
    );
    let reader = captures(&bucket, command(&script));
    let seen = reader.extract(&session(&["captures/a/2.png", "captures/a/1.png"])).await.unwrap();
    assert_eq!(seen.entries[0].start, "8-16");
    let told = std::fs::read_to_string(told.path().join("told")).unwrap();
    let told: Vec<Vec<&str>> = told.lines().map(|line| line.split(' ').collect()).collect();
    let sizes: Vec<&str> = told.iter().map(|line| line[1]).collect();
    assert_eq!(sizes, ["6", &png(&sheet().draw()).len().to_string()]);
    for line in &told {
        assert_eq!(line[2], "700", "{told:?}");
        assert!(!std::path::Path::new(line[0]).exists(), "the images are gone afterwards");
    }
}

#[tokio::test]
async fn what_cannot_be_fetched_says_what_follows() {
    let store = EmbeddedStore::start().await.unwrap();
    let bucket = Bucket::new(store.address()).unwrap();
    let reader = captures(&bucket, command("false"));
    let large = vec![0; usize::try_from(MAX_IMAGE_BYTES).unwrap() + 1];
    put(&bucket, "large", large).await;
    put(&bucket, "small", vec![1]).await;
    let failed = |error: &ExtractError| matches!(error, ExtractError::Failed(_));
    let unreadable = |error: &ExtractError| matches!(error, ExtractError::Unreadable(_));

    let error = reader.extract(&session(&["small", "none"])).await.unwrap_err();
    assert!(failed(&error) && error.to_string().contains("image 2 is not in the"), "{error}");
    let error = reader.extract(&session(&["large"])).await.unwrap_err();
    assert!(
        unreadable(&error) && error.to_string().contains("image 1 has more than 32"),
        "{error}"
    );
    let error = reader.extract(&session(&["../small"])).await.unwrap_err();
    assert!(unreadable(&error) && !error.to_string().contains("../small"), "{error}");
    let error = reader.extract(&session(&["small"])).await.unwrap_err();
    assert!(failed(&error) && error.to_string().contains("exit status: 1"), "{error}");
    let setup = Command::new(&["/no/such/program".to_owned()], Duration::from_secs(9), 0.7);
    let setup = captures(&bucket, Extractor::Command(setup.unwrap()));
    let error = setup.extract(&session(&["small"])).await.unwrap_err();
    assert!(matches!(error, ExtractError::Unreachable(_)), "{error}");

    store.stop().await.unwrap();
    let error = reader.extract(&session(&["small"])).await.unwrap_err();
    assert!(matches!(error, ExtractError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_photographed_day_becomes_a_version_and_a_bad_picture_an_error_to_act_on() {
    let store = EmbeddedStore::start().await.unwrap();
    let bucket = Bucket::new(store.address()).unwrap();
    let database = testkit::database("captures", "schedule", async |url| {
        schedule::migration::migrate(&pg::Options::new(url)).await
    })
    .await
    .unwrap();
    let client = database.connect().await.unwrap();
    let blurred = image::imageops::blur(&sheet().draw(), 9.0);
    let pictures = [sheet().draw(), blurred, GrayImage::from_pixel(800, 600, Luma([240]))];
    let mut sessions = Vec::new();
    for picture in pictures {
        let (id, key) = (Uuid::now_v7(), format!("captures/{}/1", sessions.len()));
        put(&bucket, &key, png(&picture)).await;
        let open = "INSERT INTO schedule_ingest.capture_session (id, user_id) VALUES ($1, $2)";
        client.execute(open, &[&id, &USER]).await.unwrap();
        let add = "INSERT INTO schedule_ingest.capture_image (id, session_id, sequence, r2_key, created_at)
            VALUES ($1, $2, 1, $3, now())";
        client.execute(add, &[&Uuid::now_v7(), &id, &key]).await.unwrap();
        sessions.push(id);
    }
    let settings = Settings {
        poll: Duration::from_millis(20),
        idle_timeout: Duration::ZERO,
        ..Settings::new("captures")
    };
    let reader = captures(&bucket, ocr(&["eng"]).await);
    let worker = Worker::start(&pg::Options::new(database.url()), &settings, reader).unwrap();
    let state = async |session: Uuid| {
        let select = "SELECT state::text, error FROM schedule_ingest.capture_session WHERE id = $1";
        let row = client.query_one(select, &[&session]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, Option<String>>(1))
    };
    eventually(Duration::from_secs(120), "all sessions end", async || {
        let mut ended = 0;
        for session in &sessions {
            ended += usize::from(matches!(state(*session).await.0.as_str(), "done" | "failed"));
        }
        ended == sessions.len()
    })
    .await
    .unwrap();
    worker.stop().await;
    assert_eq!(state(sessions[0]).await, ("done".to_owned(), None));
    for session in &sessions[1..] {
        let (state, error) = state(*session).await;
        let error = error.unwrap();
        assert!(state == "failed" && error.contains("Photograph"), "{state}: {error}");
    }
    let days = "SELECT schedule_date::text FROM schedule_ingest.schedule_version";
    assert_eq!(client.query_one(days, &[]).await.unwrap().get::<_, String>(0), "2026-11-16");
}
