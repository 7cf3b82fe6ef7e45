// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

// Package spanlog reads recorded spans back into pdata, whatever they were recorded as.
//
// The format is detected from the content, never from the name:
//
//   - the text of the Collector's debug exporter at verbosity detailed: the whole output with the
//     console logger's lines around it, or only span blocks cut out of it, indented or not, and the same
//     text inside the Collector's JSON logs (encoding: json);
//   - OTLP JSON: one document, pretty printed or not, or any number of them one after the other, as
//     the file exporter writes them;
//   - OTLP protobuf: a bare TracesData or ExportTraceServiceRequest message, or messages that are
//     each preceded by their length in four bytes, big endian, as the file exporter writes them with
//     format proto, or with a compression (then each message may be JSON, and zstd in itself).
//
// Any of them may be compressed as a whole with gzip or zstd. Payloads of metrics, logs and profiles
// in the same file are passed over and counted.
//
// # What the debug exporter's text does not carry
//
// The flags of spans and links, the dropped attribute counts of resources and scopes, and kinds and
// status codes unknown to the exporter are not printed and read back as zero. A double is printed with
// as many digits as it needs, so it reads back exactly. Inside a Map or a Slice, which are
// printed as JSON, a whole double reads back as an integer and bytes as a base64 string, and a Map or
// Slice with a NaN or an infinity in it is printed as nothing and reads back empty. A string of several
// lines is put together again; that is ambiguous only if one of its lines looks like the exporter's own
// structure. A carriage return before a line feed is lost. The name and version of a scope are told apart by
// the last blank between them.
package spanlog
