// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package spanlog

// Whatever a file holds: no panic, no endless loop, and either payloads or an *Error.

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configtelemetry"
)

func fuzz(f *testing.F, wrap func([]byte) []byte) {
	lim := limits{record: 1 << 16, elements: 1 << 12, depth: 64}
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := newReader(bytes.NewReader(wrap(content)), "fuzz", lim)
		for err == nil {
			if td, nextErr := r.Next(); nextErr != nil {
				err = nextErr
			} else {
				require.Positive(t, td.SpanCount())
			}
		}
		if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			fault := requireFault(t, err)
			require.NotEmpty(t, fault.Expected)
			require.NotContains(t, fault.Error(), "\n")
		}
		if r != nil {
			require.NoError(t, r.Close())
		}
	})
}

func same(content []byte) []byte { return content }

func FuzzDebugText(f *testing.F) {
	recorded, err := os.ReadFile(recordedV0)
	require.NoError(f, err)
	f.Add(recorded)
	f.Add(debugText(f, "console", configtelemetry.LevelDetailed, everything(), someMetrics(), someLogs()))
	f.Add([]byte("x\nSpan #0\nTrace ID : \nID : \nName : \nStart time : 1970-01-01 00:00:00 +0000 UTC\nEnd time : 1970-01-01 00:00:00 +0000 UTC\nAttributes:\n-> a: Slice([{\"a\":1}])"))
	fuzz(f, func(content []byte) []byte { return append([]byte("log\n"), content...) })
}

func FuzzJSON(f *testing.F) {
	f.Add(marshalJSON(f, everything()))
	f.Add(debugText(f, "json", configtelemetry.LevelDetailed, small(1)))
	f.Add([]byte(`{"resourceMetrics":[]} {"resourceSpans":null}`))
	fuzz(f, same)
}

func FuzzProto(f *testing.F) {
	f.Add(marshalProto(f, everything()))
	f.Add(bareProto(deepProto(20)))
	fuzz(f, same)
}

func FuzzDelimited(f *testing.F) {
	f.Add(marshalProto(f, everything()))
	f.Add(marshalJSON(f, everything()))
	f.Add(zstandard(f, marshalProto(f, small(1))))
	fuzz(f, func(content []byte) []byte { return delimited(content) })
}

func FuzzCompressed(f *testing.F) {
	f.Add(gzipped(f, marshalJSON(f, small(1))))
	f.Add(zstandard(f, marshalProto(f, small(1))))
	f.Add(delimited([]byte{}, marshalProto(f, small(1))))
	fuzz(f, same)
}
