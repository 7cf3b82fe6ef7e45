// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"math"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

// requestBytes is what FuzzTimeline takes for a request: how long after the one before it starts, which figures it has, and those.
const requestBytes = 4 + int(llmrequest.NumFields)

// FuzzTimeline feeds any requests, again and again until windows have been closed: at any time, none from the network may make it panic, and
// what must hold of windows does.
func FuzzTimeline(f *testing.F) {
	usual := func(gap byte, fields uint16, figures ...byte) []byte {
		return append([]byte{gap, 128, byte(fields), byte(fields >> 8)}, append(figures, make([]byte, int(llmrequest.NumFields))...)[:llmrequest.NumFields]...)
	}
	v0 := usual(10, 1<<llmrequest.E2E|1<<llmrequest.TimeToFirstToken|1<<llmrequest.Queue|1<<llmrequest.Scheduler|1<<llmrequest.Forward|
		1<<llmrequest.Execute|1<<llmrequest.InputTokens|1<<llmrequest.OutputTokens, 150, 110, 90, 100, 145, 148, 0, 0, 0, 180, 170)
	v1 := usual(10, 1<<llmrequest.E2E|1<<llmrequest.TimeToFirstToken|1<<llmrequest.Queue|1<<llmrequest.Prefill|1<<llmrequest.Decode|
		1<<llmrequest.Inference|1<<llmrequest.InputTokens|1<<llmrequest.OutputTokens, 150, 110, 90, 0, 0, 0, 105, 149, 149, 180, 170)
	f.Add(uint64(1764547200e9), uint8(10), uint8(8), append(v0, v1...))
	f.Add(uint64(1), uint8(1), uint8(0), v1)
	f.Add(uint64(30e9), uint8(10), uint8(0), usual(10, 1<<llmrequest.E2E|1<<llmrequest.Queue|1<<llmrequest.Inference, 120, 0, 200, 0, 0, 0, 0, 0, 119))
	f.Add(uint64(math.MaxInt64/2), uint8(60), uint8(200), v0)
	f.Fuzz(func(t *testing.T, start uint64, window, maxNumSeqs uint8, data []byte) {
		if len(data) < requestBytes || len(data) > 64*requestBytes {
			return
		}
		win := time.Duration(max(window, 1)) * time.Second
		budget := &Budget{}
		budget.Refill(1000)
		tl := New(Config{Window: win, MaxNumSeqs: int(maxNumSeqs), MaxRequests: 500, MaxWindows: 100, Budget: budget})
		var ws []Window
		for range 1 + 1000/(len(data)/requestBytes) {
			for in := data; len(in) >= requestBytes; in = in[requestBytes:] {
				// From a second back to half a minute ahead, mostly near: gaps are powers as figures are.
				gap := duration(in[0]) * float64(int8(in[1]^0x80)+16) / 256
				start += uint64(int64(min(max(gap, -1), 3e4) * sec))
				q := llmrequest.Request{Figures: llmrequest.Figures{Start: pcommon.Timestamp(start), Sequences: 1, Generation: llmrequest.Generation(in[0] % 3)}}
				for field := range llmrequest.NumFields {
					if v := in[4+int(field)]; (uint16(in[2])|uint16(in[3])<<8)&(1<<field) != 0 {
						q.Set(field, duration(v))
						if field >= llmrequest.InputTokens {
							q.Set(field, math.Floor(duration(v)*10))
						}
					}
				}
				tl.Add(&q)
			}
			ws = append(ws, tl.Windows()...)
		}
		tl.Flush(maxNumSeqs%2 == 0)
		ws = append(ws, tl.Windows()...)
		if tl.Stats().Restarts == 0 {
			checkWindows(t, ws, win)
		}
	})
}

// duration is from 0 over 1 us to three days, s.
func duration(b byte) float64 {
	if b == 0 {
		return 0
	}
	return 1e-6 * math.Exp2(float64(b)*0.15)
}
