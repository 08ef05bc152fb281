//! The worker and its model command: good, slow, garbled, flooding, crashing; killed between its steps.

use std::path::{Path, PathBuf};
use std::time::Duration;

use edge::config::Inference;
use edge::inference::Evaluator;
use event::id::MediaId;
use objects::Bucket;
use serde_json::{Value, json};
use testkit::{EmbeddedStore, eventually};

use crate::inference::ask_for;
use crate::media_world::{self, Camera, Place};
use crate::site::{LONG, Site};
use crate::weighing::{Barn, image};

/// A site with images in a store, and jobs for them.
struct Farm {
    site: Site,
    store: EmbeddedStore,
    bucket: Bucket,
    barn: Barn,
}

fn shell(script: &str, argument: &Path) -> Vec<String> {
    let argument = argument.to_str().unwrap();
    ["/bin/sh", "-c", script, argument].map(str::to_owned).to_vec()
}

fn config(command: Vec<String>) -> Inference {
    Inference {
        command,
        workers: 1,
        timeout: LONG,
        max_attempts: 1,
        backoff_base: Duration::from_millis(10),
        backoff_cap: Duration::from_millis(20),
    }
}

const ANSWER: &str = r#"{"predicted_weight_kg":7,"confidence":0.5,"model_version":"v"}"#;
const JOBS: &str = "SELECT count(*) FROM inference_jobs";
const STORED: &str = "SELECT count(*) FROM inference_results";
const TOLD: &str = "SELECT count(*) FROM sync_outbox WHERE event_type = 'inference.completed'";

impl Farm {
    async fn new(name: &str) -> Farm {
        let store = EmbeddedStore::start().await.unwrap();
        let bucket = Bucket::new(store.address()).unwrap();
        Farm { site: Site::new(name).await, store, bucket, barn: Barn::new() }
    }

    /// An image with this content, and a job for it.
    async fn image(&self, content: &'static [u8], session: Option<&str>) -> MediaId {
        let size = i64::try_from(content.len()).unwrap();
        let media = image(&self.site, &self.barn, session, "stored", size).await;
        let key = format!("tenants/{}/images/{media}.jpg", self.barn.tenant);
        self.bucket.put(&key, "image/jpeg", content.into()).await.unwrap();
        ask_for(&self.site, &self.barn, media).await;
        media
    }

    fn start(&self, config: &Inference, replica: &str) -> Evaluator {
        let database = &self.site.config.database;
        let bucket = Some(self.bucket.clone());
        Evaluator::start(database, config, bucket, &replica.parse().unwrap()).unwrap()
    }

    async fn until(&self, query: &str, expected: i64) {
        eventually(LONG, query, async || match self.site.number(query).await {
            number if number == expected => Ok(()),
            other => Err(format!("{other}, not {expected}")),
        })
        .await
        .unwrap();
    }

    /// What became of the only job.
    async fn job(&self) -> (String, i32, String, String, String) {
        let query = "SELECT status, attempt_count, coalesce(last_error_code, ''),
            coalesce(last_error_message, ''), coalesce(last_stderr, '') FROM inference_jobs";
        let row = self.site.client().await.query_one(query, &[]).await.unwrap();
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))
    }

    /// Ends the leases of all jobs, as a worker that was killed does in time.
    async fn lapse(&self) {
        let lapse = "UPDATE inference_jobs SET lease_expires_at = now() - interval '1 s'
            WHERE status = 'claimed'";
        self.site.client().await.execute(lapse, &[]).await.unwrap();
    }

    async fn done(self) {
        self.store.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_starts_removes_what_a_killed_one_left() {
    let farm = Farm::new("model_left").await;
    let make = |what: &str| {
        let name = format!("holdfast-inference-{what}-{}", farm.barn.tenant);
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(directory.join("work")).unwrap();
        std::fs::write(directory.join("work/image.jpg"), b"an image").unwrap();
        let lock = std::fs::File::create(directory.join("lock")).unwrap();
        (directory, lock)
    };
    let (left, _) = make("left");
    let (used, lock) = make("used");
    lock.try_lock().unwrap();
    let worker = farm.start(&config(shell("exit 1", Path::new("-"))), "edge-1");
    assert!(!left.exists(), "what nobody holds is gone");
    assert!(used.join("work/image.jpg").exists(), "another worker is at this one");
    worker.stop().await;
    std::fs::remove_dir_all(used).unwrap();
    farm.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_evaluated_and_told_of() {
    let farm = Farm::new("model_good").await;
    let media = farm.image(b"seven b", None).await;
    farm.image(b"four", None).await;
    let job = farm
        .site
        .text(&format!("SELECT id::text FROM inference_jobs WHERE media_id = '{media}'"))
        .await;
    let model = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/edge/model.sh"));
    let worker = farm.start(&config(vec![model.to_str().unwrap().to_owned()]), "edge-1");
    farm.until(TOLD, 2).await;
    farm.until(JOBS, 0).await;
    // One that comes while the worker runs.
    farm.image(b"nine byte", None).await;
    farm.until(TOLD, 3).await;
    let row = format!(
        "SELECT concat_ws(' ', id, predicted_weight_kg, confidence, model_version, device_id)
         FROM inference_results WHERE media_id = '{media}'"
    );
    let expected = format!("{job} 7 0.5 by-size-1 {}", farm.barn.camera);
    assert_eq!(farm.site.text(&row).await, expected, "the job's id is the result's");
    farm.until(JOBS, 0).await;
    let counts = worker.counts();
    worker.stop().await;
    assert_eq!((counts.done, counts.retried, counts.buried, counts.fenced), (3, 0, 0, 0));
    farm.done().await;
}

/// A model that prints what it reads: it is all there, and stays out of the messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_told_of_the_image_and_its_session_and_of_no_secret() {
    let farm = Farm::new("model_line").await;
    let client = farm.site.client().await;
    let session = uuid::Uuid::now_v7();
    let Barn { tenant, farm: at, barn, scale, .. } = farm.barn;
    let insert = format!(
        "INSERT INTO weight_sessions (id, tenant_id, farm_id, barn_id, device_id, start_at, initial_weight_kg)
         VALUES ('{session}', '{tenant}', '{at}', '{barn}', '{scale}', '2026-02-01T10:05:00Z', 120.5)"
    );
    client.execute(&insert, &[]).await.unwrap();
    let media = farm.image(b"abc", Some(&session.to_string())).await;
    let script = "read -r line; echo \"$line\" >&2; cat $(echo \"$line\" | sed 's/.*\"image\":\"\\([^\"]*\\)\".*/\\1/') >&2; env | cut -d= -f1 >&2; exit 3";
    let worker = farm.start(&config(shell(script, Path::new("x"))), "edge-1");
    farm.until("SELECT count(*) FROM inference_jobs WHERE status = 'dlq'", 1).await;
    worker.stop().await;
    let (_, _, code, message, stderr) = farm.job().await;
    assert_eq!(code, "MODEL_FAILED");
    assert!(
        message.contains("exit status: 3") && !message.contains(&media.to_string()),
        "{message}"
    );
    let (line, rest) = stderr.split_once('\n').unwrap();
    let mut line: Value = serde_json::from_str(line).unwrap();
    assert!(line["image"].as_str().unwrap().ends_with("/image.jpg"));
    assert!(line["media"]["captured_at"].take().is_string());
    assert_eq!(
        line["session"],
        json!({"session_id": session, "batch_id": null, "start_at": "2026-02-01T10:05:00Z", "initial_weight_kg": 120.5})
    );
    let mut media = json!({"media_id": media, "tenant_id": tenant, "farm_id": at, "barn_id": barn,
        "device_id": farm.barn.camera, "mime_type": "image/jpeg", "size_bytes": 3});
    media["captured_at"] = Value::Null;
    assert_eq!(line["media"], media);
    assert!(rest.starts_with("abc"), "the image is the image: {rest}");
    assert!(!rest.contains("CARGO"), "what it need not know it does not: {rest}");
    farm.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_misbehaves_harms_its_own_job_alone() {
    let farm = Farm::new("model_bad").await;
    let nowhere = Path::new("x");
    for (script, code, said) in [
        ("echo secret", "MODEL_ANSWER", "no JSON object"),
        ("exit 0", "MODEL_ANSWER", "no JSON object"),
        ("echo '{\"confidence\": 2}'", "MODEL_ANSWER", "confidence is not from 0 to 1"),
        ("echo '{\"confidence\": 1, \"predicted_weight_kg\": 1}'", "MODEL_ANSWER", "model_version"),
        ("yes secret", "MODEL_OUTPUT", "65536 bytes"),
        ("yes secret | head -c 3000000 >&2; exit 9", "MODEL_FAILED", "exit status: 9"),
        ("kill -9 $$", "MODEL_FAILED", "signal: 9"),
        (
            "printf '%s' '{\"predicted_weight_kg\":7,\"confidence\":0.5,\"model_version\":\"v\"}'; exit 1",
            "MODEL_FAILED",
            "exit status: 1",
        ),
    ] {
        farm.image(b"abc", None).await;
        let mut config = config(shell(script, nowhere));
        config.max_attempts = 2;
        let worker = farm.start(&config, "edge-1");
        farm.until("SELECT count(*) FROM inference_jobs WHERE status = 'dlq'", 1).await;
        worker.stop().await;
        let (_, attempts, found, message, stderr) = farm.job().await;
        assert_eq!((attempts, found.as_str()), (2, code), "{script}");
        assert!(message.contains(said) && !message.contains("secret"), "{script}: {message}");
        assert!(stderr.chars().count() <= 1_000, "{}", stderr.len());
        let reason = "SELECT dlq_reason FROM inference_jobs";
        assert_eq!(farm.site.text(reason).await, "max_attempts_exceeded");
        farm.site.client().await.execute("DELETE FROM inference_jobs", &[]).await.unwrap();
    }
    assert_eq!(farm.site.number(STORED).await + farm.site.number(TOLD).await, 0);
    farm.done().await;
}

fn runs(pid: &str) -> bool {
    // A zombie that nobody has waited for yet does not run.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_hangs_is_killed_with_its_children() {
    let farm = Farm::new("model_slow").await;
    farm.image(b"abc", None).await;
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script =
        "sleep 600 & echo $! $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; trap '' TERM; wait; sleep 600";
    let mut slow = config(shell(script, &pids));
    slow.timeout = Duration::from_millis(500);
    let worker = farm.start(&slow, "edge-1");
    farm.until("SELECT count(*) FROM inference_jobs WHERE status = 'dlq'", 1).await;
    let (_, _, code, message, _) = farm.job().await;
    assert_eq!(code, "MODEL_TIMEOUT", "{message}");
    let started = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(started.split_whitespace().count(), 2, "{started}");
    eventually(LONG, "nothing of it is left", async || !started.split_whitespace().any(runs))
        .await
        .unwrap();
    worker.stop().await;
    farm.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_fault_of_an_image_costs_it_no_attempt() {
    let farm = Farm::new("model_down").await;
    let media = farm.image(b"abc", None).await;
    let down = async |config: &Inference, bucket: Bucket| {
        let database = &farm.site.config.database;
        let worker =
            Evaluator::start(database, config, Some(bucket), &"edge-1".parse().unwrap()).unwrap();
        eventually(LONG, "it was given back", async || worker.counts().released >= 2)
            .await
            .unwrap();
        worker.stop().await;
        assert_eq!(
            farm.job().await,
            ("pending".to_owned(), 0, String::new(), String::new(), String::new())
        );
    };
    down(&config(vec!["/nonexistent/model".to_owned()]), farm.bucket.clone()).await;
    let mut away = farm.store.address().clone();
    away.secret_key = "wrong".to_owned();
    let good = config(shell(&format!("echo '{ANSWER}'"), Path::new("x")));
    down(&good, Bucket::new(&away).unwrap()).await;

    // And what is: an object that is another, a row or an object that has gone.
    let client = farm.site.client().await;
    client.execute("UPDATE media_objects SET size_bytes = 4", &[]).await.unwrap();
    let worker = farm.start(&good, "edge-1");
    farm.until("SELECT count(*) FROM inference_jobs WHERE last_error_code = 'MEDIA_DAMAGED'", 1)
        .await;
    let put_back = "UPDATE inference_jobs SET status = 'pending', attempt_count = 0, failed_at = NULL, dlq_reason = NULL";
    let key = format!("tenants/{}/images/{media}.jpg", farm.barn.tenant);
    farm.bucket.delete(&key).await.unwrap();
    client.execute(put_back, &[]).await.unwrap();
    let gone = "SELECT count(*) FROM inference_jobs WHERE dlq_reason = 'media_gone'";
    farm.until(gone, 1).await;
    client
        .execute("UPDATE media_objects SET status = 'deleted', deleted_at = now()", &[])
        .await
        .unwrap();
    client.execute(put_back, &[]).await.unwrap();
    farm.until(gone, 1).await;
    worker.stop().await;
    assert_eq!(farm.site.number(STORED).await, 0);
    farm.done().await;
}

#[tokio::test]
async fn a_worker_without_images_is_refused() {
    let site = Site::new("model_nowhere").await;
    let command = config(vec!["true".to_owned()]);
    let refused = Evaluator::start(&site.config.database, &command, None, &"a".parse().unwrap());
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("inference.command") && error.contains("s3_endpoint"), "{error}");
}

/// Waits until it is let go, and says how often it ran.
const GATED: &str = "echo x >> \"$0.runs\"; while [ ! -e \"$0\" ]; do sleep 0.02; done; ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_killed_at_any_step_leaves_one_result() {
    let farm = Farm::new("model_killed").await;
    farm.image(b"abc", None).await;
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let gated = config(shell(&format!("{GATED}echo '{ANSWER}'"), &gate));
    let runs = || {
        std::fs::read_to_string(folder.path().join("gate.runs")).unwrap_or_default().lines().count()
    };

    // Killed while the model runs: dropping it is like a crash.
    let first = farm.start(&gated, "edge-1");
    eventually(LONG, "the model runs", async || runs() == 1).await.unwrap();
    drop(first);
    farm.lapse().await;
    let lenient = Inference { max_attempts: 5, ..gated.clone() };
    // Asleep while the model runs: its lease ends, and another takes the job over.
    let zombie = farm.start(&lenient, "edge-2");
    eventually(LONG, "the model runs again", async || runs() == 2).await.unwrap();
    farm.lapse().await;
    let other = Inference {
        command: shell(
            "echo '{\"predicted_weight_kg\":8,\"confidence\":0.5,\"model_version\":\"w\"}'",
            &gate,
        ),
        ..lenient.clone()
    };
    let last = farm.start(&other, "edge-3");
    farm.until(JOBS, 0).await;
    std::fs::write(&gate, "").unwrap();
    eventually(LONG, "the zombie has found out", async || zombie.counts().fenced == 1)
        .await
        .unwrap();
    zombie.stop().await;
    assert_eq!((farm.site.number(STORED).await, farm.site.number(TOLD).await), (1, 1));
    assert_eq!(farm.site.text("SELECT model_version FROM inference_results").await, "w");

    // Killed after the result was stored and before the job was settled.
    let again = "INSERT INTO inference_jobs (id, tenant_id, media_id)
        SELECT id, tenant_id, media_id FROM inference_results";
    farm.site.client().await.execute(again, &[]).await.unwrap();
    farm.until(JOBS, 0).await;
    last.stop().await;
    assert_eq!((farm.site.number(STORED).await, farm.site.number(TOLD).await), (1, 1));
    farm.done().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_gives_back_what_is_under_way_and_leaves_no_process() {
    let farm = Farm::new("model_stop").await;
    farm.image(b"abc", None).await;
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; sleep 600";
    let worker = farm.start(&config(shell(script, &pid)), "edge-1");
    eventually(LONG, "the model runs", async || pid.exists()).await.unwrap();
    worker.stop().await;
    let started = std::fs::read_to_string(&pid).unwrap();
    eventually(LONG, "nothing of it is left", async || !runs(started.trim())).await.unwrap();
    let (status, attempts, ..) = farm.job().await;
    assert_eq!((status.as_str(), attempts), ("pending", 0));
    farm.done().await;
}

/// A result that somebody sends while the model is at work is the image's only one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_came_meanwhile_is_the_only_one() {
    let farm = Farm::new("model_meanwhile").await;
    let media = farm.image(b"abc", None).await;
    let folder = tempfile::tempdir().unwrap();
    let door = folder.path().join("door");
    let script = format!("touch \"$0\"; while [ -e \"$0\" ]; do sleep 0.02; done; echo '{ANSWER}'");
    let worker = farm.start(&config(shell(&script, &door)), "edge-1");
    eventually(LONG, "the model runs", async || door.exists()).await.unwrap();
    let sent = "INSERT INTO inference_results (id, tenant_id, farm_id, barn_id, device_id, media_id, predicted_weight_kg,
            confidence, model_version, occurred_at)
        SELECT gen_random_uuid(), tenant_id, farm_id, barn_id, device_id, id, 9, 1, 'other', now()
        FROM media_objects WHERE id = $1";
    assert_eq!(farm.site.client().await.execute(sent, &[&media.uuid()]).await.unwrap(), 1);
    std::fs::remove_file(&door).unwrap();
    farm.until(JOBS, 0).await;
    assert_eq!((farm.site.number(STORED).await, farm.site.number(TOLD).await), (1, 0));
    worker.stop().await;
    farm.done().await;
}

/// The whole way at a site: a camera's upload is evaluated by the edge's own worker, and the session
/// that it belongs to is finalized with what the model said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_is_evaluated_and_its_session_finalized_with_the_result() {
    let mut place = Place::embedded(&[]).await;
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/edge/model.sh");
    place.config.inference = Some(config(vec![model.to_owned()]));
    let edge = place.start().await;
    let camera = Camera::new(&place, &edge).await;
    let session = camera.session().await;
    for size in [300, 500] {
        let bytes = media_world::image(size);
        let mut announced = camera.announce(&bytes);
        announced["session_id"] = json!(session);
        let (status, upload) = camera.post("/media", announced).await;
        assert_eq!(status, 201, "{upload}");
        assert!(media_world::put(&upload["upload"], &bytes).await.unwrap().is_success());
        assert!(camera.complete(&upload).await.0.is_success());
    }
    eventually(LONG, "both have their result", async || place.number(TOLD).await == 2)
        .await
        .unwrap();
    let path = format!("/sessions/{session}/finalize");
    let (status, ended) = camera.post(&path, json!({"final_weight_kg": 2.0})).await;
    assert_eq!(status, 200, "{ended}");
    assert_eq!(ended["image_count"], 2);
    let chosen = "SELECT count(*) FROM inference_results r JOIN weight_sessions s
        ON s.inference_result_id = r.id AND s.id = r.session_id
        WHERE r.predicted_weight_kg IN (300, 500)";
    assert_eq!(place.number(chosen).await, 1);
    edge.stop().await;
    assert_eq!(place.number(JOBS).await, 0);
}
