// What the console answers, from its OpenAPI document: `npm run client` makes `schema.d.ts` from `openapi.json`.
import type { components } from './schema';

type Schemas = components['schemas'];

/** A field that may be null is always there: the document calls it optional. An alarm or a session is one with the words we know, wherever it lies. */
export type Full<T> = T extends Schemas['Alarm'] ? Alarm : T extends Schemas['WeighSession'] ? WeighSession : T extends (infer Item)[] ? Full<Item>[] : T extends object ? Fields<T> : T;
type Fields<T> = { [K in keyof T]-?: Full<Exclude<T[K], undefined>> };

/** Words that other parts say and the console passes on: the document has them as text, their own pages say which they are. */
type Known<T, Words> = Omit<T, keyof Words> & Words;

export type Alarm = Known<Fields<Schemas['Alarm']>, {
  state: 'normal' | 'active_unacknowledged' | 'active_acknowledged' | 'cleared_unacknowledged';
  severity: 'LOW' | 'MEDIUM' | 'HIGH' | 'CRITICAL';
}>;
export type AlarmCounts = Full<Schemas['AlarmCounts']>;
export type Alert = Full<Schemas['Alert']>;
export type Conservation = Full<Schemas['Conservation']>;
export type Counts = Full<Schemas['Counts']>;
export type DeadGroup = Full<Schemas['DeadGroup']>;
export type Flood = Full<Schemas['Flood']>;
export type Flow = Full<Schemas['Flow']>;
export type FlowHistory = Full<Schemas['FlowHistory']>;
export type Gap = Full<Schemas['Gap']>;
export type Inference = Full<Schemas['Inference']>;
export type Job = Full<Schemas['Job']>;
export type Lane = Full<Schemas['Lane']>;
export type Link = Full<Schemas['Link']>;
export type Mark = Full<Schemas['Mark']>;
export type Me = Full<Schemas['Me']>;
export type Media = Full<Schemas['Media']>;
export type NodeChanges = Full<Schemas['NodeChanges']>;
export type NodeCounts = Full<Schemas['NodeCounts']>;
export type NodePage = Full<Schemas['NodePage']>;
export type NodeRow = Full<Schemas['NodeRow']>;
export type Picture = Full<Schemas['Picture']>;
export type Plots = Full<Schemas['Plots']>;
export type Queue = Full<Schemas['Queue']>;
export type RedriveResult = Full<Schemas['RedriveResult']>;
export type ScheduleDay = Full<Schemas['ScheduleDay']>;
export type ScheduleWeek = Full<Schemas['ScheduleWeek']>;
export type Series = Full<Schemas['Series']>;
export type Shift = Full<Schemas['Shift']>;
export type ShiftChange = Full<Schemas['ShiftChange']>;
export type StreamRow = Full<Schemas['StreamRow']>;
export type Totals = Full<Schemas['Totals']>;
export type Upstream = Full<Schemas['Upstream']>;
export type VerifyResult = Full<Schemas['VerifyResult']>;
export type View = Full<Schemas['View']>;
export type WeighSession = Known<Fields<Schemas['WeighSession']>, { status: 'created' | 'finalized' | 'cancelled' }>;
export type Where = Full<Schemas['Where']>;

export type Stage = Flow['stages'][number];
