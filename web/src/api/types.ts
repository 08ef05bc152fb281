// What the console answers: docs/spec/console.md.
export type Time = string;
export type Id = string /* UUID */;

// POST /api/v1/sign-in {token: string} -> Me     POST /api/v1/sign-out -> 204     GET /api/v1/me -> Me
export type Me = {
  name: string; role: "viewer" | "operator" | "admin"; can_act: boolean;
  tenants: Id[] | null;        // null: all of them
  tenants_seen: Id[];          // those of them that any upstream has named
  expires_at: Time;            // the session's end
  views: View[];               // what is configured and may be seen
  sites: string[]; in_up: boolean;   // in_up: links can be cut
};
export type View = "flow" | "conservation" | "nodes" | "explore" | "sessions" | "alarms" | "queues" | "schedules" | "alerts";

export type Picture = {
  tick: number; at: Time;
  upstreams: Upstream[];
  flow: Flow;
  totals: Totals;
  nodes: NodeCounts;
  node_list: NodeRow[] | null;      // null when there are more than 200
  alerts: { critical: number; warning: number };
  alarms: AlarmCounts | null;       // null: no historian, or not for this user
};
export type Upstream = { id: string;       // "site:NAME" | "cloud" | "historian" | "up"
  kind: "site" | "cloud" | "historian" | "up"; name: string;
  state: "here" | "away" | "asking";   // asking: not answered yet since start
  since: Time; error: string | null; took_ms: number | null };
export type Flow = { lanes: Lane[]; stages: Stage[]; links: Link[] };
export type Lane = { id: string; name: string; kind: "site" | "plant" };   // stages without a lane are shared by all sites
export type Stage = { id: string;          // "node:SITE" "edge:SITE" "cloud" "bus" "store" "historian"
  kind: "node" | "edge" | "cloud" | "bus" | "store"; lane: string | null; name: string;
  state: "ok" | "waiting" | "broken" | "unknown";
  rate_per_s: number | null;        // what comes in here
  held: number | null;              // what waits here for the next stage
  oldest_age_s: number | null; detail: string };
export type Link = { id: string;           // "nodes:SITE" (node to edge) "uplink:SITE" (edge to cloud) "relay" (cloud to bus) "store" (bus to store)
  from: string; to: string;         // stage ids
  state: "up" | "down" | "degraded" | "unknown"; rate_per_s: number | null;
  breaker: "closed" | "half_open" | "open" | null; held: number | null;
  drain_estimate_s: number | null;  // null: nothing waits, or it does not shrink
  since: Time | null;               // since when it is in this state
  cuttable: boolean; cut: boolean };   // cut: by a person, in `up`; for nodes:SITE when every cable is
export type Totals = { produced: number | null; at_nodes: number | null; at_edges: number | null; in_cloud: number | null;
  in_relay: number | null; lost: number | null; quarantined: number | null; dead_letters: number | null };
export type NodeCounts = { total: number; online: number; late: number; offline: number; never: number; unknown: number;
  with_backlog: number; clock_unset: number; flagged: number };
export type NodeChanges = { at: Time; changed: NodeRow[]; removed: string[] /* "SITE/NODE" */; more: number /* beyond 200: ask again */ };

export type FlowHistory = { step_s: 1; at: Time[];      // oldest first, at most 600
  series: { id: string /* stage or link */; rate_per_s: (number | null)[]; held: (number | null)[] }[] };

export type NodeRow = { site: string; node_id: string; label: string; tenant_id: Id; farm_id: Id | null; barn_id: Id | null; device_id: Id;
  liveness: "online" | "late" | "offline" | "never" | "unknown";   // by receipt; unknown: the site is away
  last_rx_at: Time | null; rx_age_s: number | null;
  last_sample_at: Time | null; sample_age_s: number | null;        // freshness
  backlog: number | null; spool_bytes: number | null; disk_free_bytes: number | null;
  clock: "set" | "unset" | null; drops: number | null;
  stored: number; lost: number; quarantined: number; rate_per_s: number | null;
  version: string | null; disabled: boolean; flagged: string | null; cuttable: boolean; cut: boolean };
// GET /api/v1/nodes/{site}/{node_id}
export type NodePage = { node: NodeRow; enrolled_at: Time; disabled_at: Time | null; flagged_at: Time | null; status_at: Time | null;
  epoch: Id | null; epochs: number; head: number | null; acked: number; received: number; recovered: number; cloned: number;
  lost_ranges: [number, number][];   // at most 200
  history: { step_s: number; at: Time[]; backlog: (number | null)[]; rate_per_s: (number | null)[]; sample_age_s: (number | null)[] } };

export type Conservation = { at: Time; totals: Counts; total: number; offset: number; items: StreamRow[]; notes: string[] };
export type Counts = { produced: number; stored: number; quarantined: number; lost: number; missing: number; in_flight: number };
export type StreamRow = Counts & { site: string | null /* null: only the cloud knows it */; tenant_id: Id; stream: string; epoch: Id;
  at_node: number; at_edge: number;   // in_flight = at_node + at_edge
  state: "whole" | "moving" | "missing" | "unknown" };   // unknown: a tier is away

export type Gap = { tenant_id: Id; stream: string; epoch: Id; from_seq: number; to_seq: number; count: number;
  first_at: Time | null; last_at: Time | null; reason: string; origin: "node" | "edge" | "cloud"; recorded_at: Time };

export type Where = { event_id: Id; site: string | null; tenant_id: Id | null; stages: { stage: string; state: string; at: Time | null }[]; notes: string[] };   // 404: nobody knows it

export type Job = { id: Id; kind: "verify" | "redrive"; target: string; state: "running" | "done" | "failed"; started_at: Time; ended_at: Time | null;
  done: number; total: number | null; message: string;
  verify: VerifyResult | null; redrive: RedriveResult | null };
export type VerifyResult = { wrong: number; streams: VerifiedStream[]; notes: string[] };
export type VerifiedStream = { tenant_id: Id; stream: string; epoch: Id; edge: Held; cloud: Held | null; blocks: number; unchecked: number;
  wrong: number; findings: Finding[] /* at most 200 */ };
export type Held = { acked: number; received: number; lost: number; kept: number };
export type Finding = { kind: string; from: number; to: number; count: number; held_by: string; wrong: boolean /* false: only on its way */ };
export type RedriveResult = { dry_run: boolean; matched: number; changed: number; by_cause: { cause: string; count: number }[] };

export type Queue = { id: string;      // "outbox:SITE" | "relay" | "bus"
  kind: "outbox" | "relay" | "bus"; site: string | null; name: string; state: "ok" | "waiting" | "broken" | "unknown";
  held: number | null; oldest_age_s: number | null; in_per_s: number | null; out_per_s: number | null; drain_estimate_s: number | null;
  breaker: "closed" | "half_open" | "open" | null; paused_until: Time | null; last_failure: string | null;
  stuck: number | null; dead: number | null; groups: DeadGroup[]; redrivable: boolean; note: string | null };
export type DeadGroup = { cause: string; event_type: string | null; queue: string | null; tenant_id: Id | null; count: number; first_at: Time | null; last_at: Time | null;
  sample_id: string | null; sample_message: string | null };

export type Series = { id: string;      // "site:SITE:TENANT:DEVICE:METRIC" | "historian:PLANT:AREA:UNIT:TAG"
  source: "site" | "historian"; site: string | null; tenant_id: Id | null; device_id: Id | null;
  name: string;                  // for people: "barn-1 temperature", "PLANT01.AREA02.UNIT_05.FLOW_RATE"
  metric: string; unit: string; first_at: Time | null; last_at: Time | null };
// GET /api/v1/explore/points?series=ID&series=ID…&from=&to=&width=1000     1 to 8 series; width 50 to 4,000
export type Plots = { from: Time; to: Time; width: number; series: Plot[] };
export type Plot = { id: string; unit: string; resolution: "raw" | "1m" | "1h" | "1d" | "buckets";
  samples: number;               // what the points stand for
  down_sampled: boolean; truncated: boolean;
  t: number[];                   // seconds since 1970, ascending, fractions allowed: as uPlot takes it
  v: (number | null)[];          // null: a break in the line. At most 2 * width values, and one null per gap
  gaps: { from: Time; to: Time; count: number; reason: string }[];   // known gaps
  error: string | null };        // this series' upstream is away

export type Mark = { at: Time; until: Time | null; kind: "alarm" | "event" | "gap"; severity: "low" | "medium" | "high" | "critical" | null; text: string; series: string | null };

export type WeighSession = { session_id: Id; tenant_id: Id; status: "created" | "finalized" | "cancelled"; farm_id: Id | null; barn_id: Id | null; device_id: Id | null; batch_id: Id | null;
  started_at: Time | null; finalized_at: Time | null; cancelled_at: Time | null; cancel_reason: string | null;
  initial_weight_kg: number | null; final_weight_kg: number | null; image_count: number | null; media_arrived: number; results_arrived: number; complete: boolean };
export type Media = { media_id: Id; occurred_at: Time; mime_type: string | null; size_bytes: number | null; copy_status: string | null; src: string /* "/api/v1/media/ID" */ };
export type Inference = { inference_result_id: Id; occurred_at: Time; predicted_weight_kg: number | null; confidence: number | null; model_version: string | null };

export type Alarm = { id: string /* PLANT.AREA.UNIT.TAG */; plant: string; area: string; unit_name: string; tag: string;
  state: "normal" | "active_unacknowledged" | "active_acknowledged" | "cleared_unacknowledged"; severity: "LOW" | "MEDIUM" | "HIGH" | "CRITICAL";
  value: number; unit: string; last_raised_at: Time | null; last_cleared_at: Time | null; acknowledged_at: Time | null; acknowledged_by: string | null;
  shelved_until: Time | null; shelved_by: string | null; shelf_reason: string | null; chattering: boolean; occurrences: number };
export type AlarmCounts = { active_unacknowledged: number; active_acknowledged: number; cleared_unacknowledged: number; shelved: number; flood: boolean };
export type Flood = { position: string; started_at: Time; peak: number };   // those that go on

export type Alert = { id: string; rule: string; severity: "critical" | "warning"; subject: string; site: string | null; since: Time;
  value: number | null; threshold: number | null; unit: string; text: string; what_to_do: string };

// GET /api/v1/schedules/week?user=&from=YYYY-MM-DD: shown only where the console lists the view.
export type Shift = { start: string; end: string; ends_next_day: boolean; title: string; location: string; customer: string; kind: string };
export type ScheduleEvent = { event_type: string; old_value: Shift | null; new_value: Shift | null };
export type ScheduleVersion = { version: number; observed_at: Time; shifts: Shift[]; events: ScheduleEvent[] };
export type ScheduleDay = { date: string; current_version: number | null; versions: ScheduleVersion[] };
export type ScheduleWeek = { user: string; users: string[]; from: string; timezone: string; days: ScheduleDay[] };
