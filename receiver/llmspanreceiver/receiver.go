// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// What happens to a payload between the OTLP server and the pipeline: request spans get the
// canonical attributes, their engine gets a name, and the name goes along with the payload.

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"go.opentelemetry.io/collector/client"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelcol-serving/otelcol-serving/internal/engineid"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadata"
)

// EngineMetadataKey is the key of the client metadata that names the engines whose requests a
// payload carries, in the order of their first request. The Kafka exporter can make it the key of its messages.
const EngineMetadataKey = "llm-serving-engine"

// maxEngineMetadata bounds a name in the client metadata, in bytes: it becomes message keys and
// headers. The resource keeps the whole name.
const maxEngineMetadata = 256

// spans is the consumer between the OTLP server and the pipeline.
type spans struct {
	next      consumer.Traces
	engines   *engineid.Resolver
	drop      bool
	telemetry *metadata.TelemetryBuilder

	// made once, since building an attribute set costs more than reading a span
	requestAttributes [llmrequest.NumKinds][llmrequest.NumGenerations]metric.MeasurementOption
	otherAttributes   metric.MeasurementOption
}

var _ consumer.Traces = (*spans)(nil)

func newSpans(set component.TelemetrySettings, other OtherSpans, next consumer.Traces) (*spans, error) {
	engines, err := engineid.NewResolver(engineid.DefaultKeys())
	if err != nil {
		return nil, err
	}
	telemetry, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, fmt.Errorf("own telemetry: %w", err)
	}
	s := &spans{next: next, engines: engines, drop: other == OtherSpansDrop, telemetry: telemetry}
	for kind := range llmrequest.NumKinds {
		for generation := range llmrequest.NumGenerations {
			s.requestAttributes[kind][generation] = metric.WithAttributeSet(attribute.NewSet(
				attribute.String("engine.kind", kind.String()),
				attribute.String("engine.generation", generation.String()),
			))
		}
	}
	outcome := "kept"
	if s.drop {
		outcome = "dropped"
	}
	s.otherAttributes = metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", outcome)))
	return s, nil
}

// Capabilities says that payloads are changed.
func (*spans) Capabilities() consumer.Capabilities { return consumer.Capabilities{MutatesData: true} }

// ConsumeTraces never refuses a payload for what a span in it is like; its errors are the pipeline's.
func (s *spans) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	p := payload{spans: s, client: client.FromContext(ctx)}
	td.ResourceSpans().RemoveIf(p.readResource)

	if td.ResourceSpans().Len() > 0 || !s.drop {
		if err := s.next.ConsumeTraces(p.context(ctx), td); err != nil {
			return err // not counted: the client sends it again
		}
	}
	p.count(ctx)
	return nil
}

// payload is the work on one payload.
type payload struct {
	spans  *spans
	client client.Info

	request  llmrequest.Request // read into again and again
	requests [llmrequest.NumKinds][llmrequest.NumGenerations]int64
	others   int64
	engines  []string
	seen     map[string]struct{} // of engines, from the second on
}

// readResource reports whether nothing of the resource is left.
func (p *payload) readResource(rs ptrace.ResourceSpans) bool {
	resource := rs.Resource().Attributes()
	hasRequest := false
	rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool {
		src := llmrequest.NewSource(resource, ss.Scope().Name())
		ss.Spans().RemoveIf(func(span ptrace.Span) bool {
			if !llmrequest.Read(span, &src, &p.request) {
				p.others++
				return p.spans.drop
			}
			hasRequest = true
			p.requests[p.request.Kind][p.request.Generation]++
			p.request.PutCanonical(span.Attributes())
			return false
		})
		return p.spans.drop && ss.Spans().Len() == 0
	})
	if hasRequest {
		p.nameEngine(resource)
	}
	return p.spans.drop && rs.ScopeSpans().Len() == 0
}

// nameEngine tells apart by their address engines whose resource does not.
func (p *payload) nameEngine(resource pcommon.Map) {
	id := p.spans.engines.Resolve(resource)
	if id.MayMix() {
		if _, given := resource.Get(engineid.PeerAddress); !given {
			if address := peerAddress(p.client.Addr); address != "" {
				resource.PutStr(engineid.PeerAddress, address)
				id = p.spans.engines.Resolve(resource)
			}
		}
	}
	p.addEngine(id.Name)
}

func (p *payload) addEngine(name string) {
	if len(name) > maxEngineMetadata {
		name = strings.ToValidUTF8(name[:maxEngineMetadata], "")
	}
	switch {
	case len(p.engines) == 0:
	case p.engines[len(p.engines)-1] == name:
		return
	default:
		if p.seen == nil {
			p.seen = map[string]struct{}{p.engines[0]: {}}
		}
		if _, known := p.seen[name]; known {
			return
		}
	}
	name = strings.Clone(name) // the metadata can outlive the payload
	p.engines = append(p.engines, name)
	if p.seen != nil {
		p.seen[name] = struct{}{}
	}
}

// context adds the engines to the client metadata, which may be shared and is copied.
func (p *payload) context(ctx context.Context) context.Context {
	if len(p.engines) == 0 {
		return ctx
	}
	md := map[string][]string{EngineMetadataKey: p.engines}
	for key := range p.client.Metadata.Keys() {
		if key != EngineMetadataKey { // the engine's own word, not a client's header
			md[key] = p.client.Metadata.Get(key)
		}
	}
	info := p.client
	info.Metadata = client.NewMetadata(md)
	return client.NewContext(ctx, info)
}

func (p *payload) count(ctx context.Context) {
	for kind := range p.requests {
		for generation, n := range p.requests[kind] {
			if n > 0 {
				p.spans.telemetry.ReceiverLlmSpanRequests.Add(ctx, n, p.spans.requestAttributes[kind][generation])
			}
		}
	}
	if p.others > 0 {
		p.spans.telemetry.ReceiverLlmSpanOtherSpans.Add(ctx, p.others, p.spans.otherAttributes)
	}
}

// peerAddress is the IP address of a client without its port, which changes with each connection,
// or "" where the client has none, as on a Unix socket.
func peerAddress(addr net.Addr) string {
	switch a := addr.(type) {
	case nil:
		return ""
	case *net.IPAddr:
		return ipText(a.IP, a.Zone)
	case *net.TCPAddr:
		return ipText(a.IP, a.Zone)
	}
	// some other transport: what it prints may still be an address and a port
	if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
		return ap.Addr().Unmap().String()
	}
	if a, err := netip.ParseAddr(addr.String()); err == nil {
		return a.Unmap().String()
	}
	return ""
}

func ipText(ip net.IP, zone string) string {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return ""
	}
	return a.Unmap().WithZone(zone).String()
}
