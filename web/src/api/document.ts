// What the console's OpenAPI document allows: which paths there are, what each takes and answers. Types alone; `schema.d.ts` is made by `npm run client`.
import type { paths } from './schema';
import type { Full } from './types';

type Method = 'get' | 'post';
/** What the document says about a method of a path. */
type Operation<P extends keyof paths, M extends Method> = Exclude<paths[P][M], undefined>;
type Json<T> = T extends { content: { 'application/json': infer Body } } ? Body : T extends { content?: never } ? null : never;
type Good<O> = O extends { responses: infer R } ? R[keyof R & (200 | 202 | 204)] : never;

/** The paths that have this method. */
export type Path<M extends Method> = { [P in keyof paths]: [Operation<P, M>] extends [never] ? never : P }[keyof paths];
/** The paths whose answer is JSON, which is what `get` reads. */
export type Readable = { [P in Path<'get'>]: [Json<Good<Operation<P, 'get'>>>] extends [never] ? never : P }[Path<'get'>];

export type Answer<P extends keyof paths, M extends Method> = Full<Json<Good<Operation<P, M>>>>;

/** A word out of the address bar may be any: the console refuses what it does not know, and says so. Nothing, and an empty text, is not sent. */
type Loose<T> = (T extends string ? string : T) | null | undefined;
type Part<O, In extends 'path' | 'query'> = O extends { parameters: infer Of } ? (In extends keyof Of ? Exclude<Of[In], undefined> : never) : never;
type InPath<O> = [Part<O, 'path'>] extends [never] ? unknown : Part<O, 'path'>;
type InQuery<O> = [Part<O, 'query'>] extends [never] ? unknown : { [K in keyof Part<O, 'query'>]: Loose<Part<O, 'query'>[K]> };
/** What stands in a path's braces, and its query, by name. */
export type Values<P extends keyof paths, M extends Method> = InPath<Operation<P, M>> & InQuery<Operation<P, M>>;

export type Body<P extends keyof paths> = Operation<P, 'post'> extends { requestBody?: infer B } ? (Exclude<B, undefined> extends { content: { 'application/json': infer J } } ? J : undefined) : undefined;
