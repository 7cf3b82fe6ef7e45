// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package llmspanreceiver

// Start and stop: one server for both nodes, which the first Shutdown of either stops.

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pipeline"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/otelcol-serving/otelcol-serving/receiver/llmspanreceiver/internal/metadata"
)

func TestBothNodesShareOneServer(t *testing.T) {
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), consumertest.NewNop(), consumertest.NewNop())
	assert.Equal(t, 2, s.listeners, "one for gRPC and one for HTTP")

	// as many as there are configurations
	a, b := anyPortConfig(), anyPortConfig()
	one := start(t, a, componenttest.NewNopHost(), consumertest.NewNop(), nil)
	two := start(t, b, componenttest.NewNopHost(), consumertest.NewNop(), nil)
	assert.NotEqual(t, one.grpc, two.grpc)
}

// refused reports whether nothing listens on address any more.
func refused(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		_ = conn.Close()
	}
	return err != nil
}

func TestFirstShutdownOfEitherNodeStopsTheServerAndWaits(t *testing.T) {
	nodes := map[string]func(*server) component.Component{
		"traces":  func(s *server) component.Component { return s.traces },
		"metrics": func(s *server) component.Component { return s.metrics },
	}
	sends := map[string]func(*testing.T, *server) error{
		"gRPC": func(t *testing.T, s *server) error {
			return exportGRPC(t.Context(), s.grpcClient(t, nil), payloadOf(0, 3, nil))
		},
		"HTTP": func(t *testing.T, s *server) error {
			code, answer, err := post(httpClient(t, nil), "http://"+s.http+"/v1/traces", protobuf(t, payloadOf(0, 3, nil)), "Content-Type", "application/x-protobuf")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %s", code, answer)
			}
			return err
		},
	}
	for node, of := range nodes {
		for protocol, send := range sends {
			t.Run(node+" first, in flight over "+protocol, func(t *testing.T) {
				arrived, release := make(chan struct{}), make(chan struct{})
				var done atomic.Bool
				next, err := consumer.NewTraces(func(context.Context, ptrace.Traces) error {
					close(arrived)
					<-release
					done.Store(true)
					return nil
				})
				require.NoError(t, err)
				s := start(t, anyPortConfig(), componenttest.NewNopHost(), next, nil)

				answered, stopped := make(chan error, 1), make(chan error, 1)
				go func() { answered <- send(t, s) }()
				<-arrived
				go func() {
					err := of(s).Shutdown(context.Background())
					if !done.Load() {
						err = fmt.Errorf("stopped while a request was in the pipeline: %w", err)
					}
					stopped <- err
				}()
				// nobody new is let in, while the request in flight is waited for
				require.Eventually(t, func() bool { return refused(s.http) }, 10*time.Second, time.Millisecond)
				if protocol == "gRPC" {
					require.Eventually(t, func() bool { return refused(s.grpc) }, 10*time.Second, time.Millisecond)
				}
				select {
				case err := <-stopped:
					t.Fatalf("did not wait: %v", err)
				default:
				}
				close(release)
				require.NoError(t, <-answered)
				require.NoError(t, <-stopped)
				assert.True(t, refused(s.grpc))

				// The other node's and any later Shutdown find nothing to do.
				for range 2 {
					require.NoError(t, s.traces.Shutdown(t.Context()))
					require.NoError(t, s.metrics.Shutdown(t.Context()))
				}
			})
		}
	}
}

func TestRestartWithTheSameConfig(t *testing.T) {
	cfg := anyPortConfig()
	for range 3 {
		sink := new(consumertest.TracesSink)
		s := start(t, cfg, componenttest.NewNopHost(), sink, nil)
		require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), payloadOf(0, 3, nil)))
		assert.Equal(t, 3, sink.SpanCount())
		require.NoError(t, s.metrics.Shutdown(t.Context()))
		require.NoError(t, s.traces.Shutdown(t.Context()))
	}
}

func TestShutdownWithoutStart(t *testing.T) {
	set := receivertest.NewNopSettings(metadata.Type)
	cfg := anyPortConfig()
	traces, err := NewFactory().CreateTraces(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	metrics, err := NewFactory().CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, metrics.Shutdown(t.Context()))
		require.NoError(t, traces.Shutdown(t.Context()))
	}
}

// A taken port fails both nodes, and what had started already is stopped.
func TestStartFailsAsAWhole(t *testing.T) {
	taken, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	defer taken.Close()
	cfg := anyPortConfig()
	cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint = taken.Addr().String()
	set := receivertest.NewNopSettings(metadata.Type)
	traces, err := NewFactory().CreateTraces(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)
	metrics, err := NewFactory().CreateMetrics(t.Context(), set, cfg, consumertest.NewNop())
	require.NoError(t, err)

	require.ErrorContains(t, traces.Start(t.Context(), componenttest.NewNopHost()), "address already in use")
	require.ErrorContains(t, metrics.Start(t.Context(), componenttest.NewNopHost()), "address already in use")
	require.NoError(t, metrics.Shutdown(t.Context()))
	require.NoError(t, traces.Shutdown(t.Context()))
}

// The telemetry of the server is not taken for that of an otlp receiver next to it.
func TestServerTelemetryIsNamed(t *testing.T) {
	s := start(t, anyPortConfig(), componenttest.NewNopHost(), consumertest.NewNop(), nil)
	require.NoError(t, exportGRPC(t.Context(), s.grpcClient(t, nil), payloadOf(0, 3, nil)))
	accepted, err := s.telemetry.GetMetric("otelcol_receiver_accepted_spans")
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(accepted.Data), "otlp/llm_span")
}

// generator sends payloads to a Unix socket, whose name, unlike a port, nobody else can take.
type generator struct {
	t    *testing.T
	send func([]byte) (retry bool)
	last atomic.Int64
}

func (*generator) Start() {}
func (*generator) Stop()  {}

// Generate sends three spans, again if it is told to.
func (g *generator) Generate() (ids []receivertest.UniqueIDAttrVal) {
	first := int(g.last.Add(3)) - 3
	td := payloadOf(first, 3, map[string]any{"service.name": "vllm"})
	for _, span := range allSpans(td) {
		id := receivertest.UniqueIDAttrVal(span.SpanID().String())
		span.Attributes().PutStr(receivertest.UniqueIDAttrName, string(id))
		ids = append(ids, id)
	}
	data := protobuf(g.t, td)
	for g.send(data) {
	}
	return ids
}

func TestConsumeContract(t *testing.T) {
	socketConfig := func(t *testing.T) (*Config, string, string) {
		dir := t.TempDir()
		grpcSocket, httpSocket := filepath.Join(dir, "g"), filepath.Join(dir, "h")
		cfg := createDefaultConfig().(*Config)
		cfg.OTLP.Protocols.GRPC.Get().NetAddr = confignet.AddrConfig{Endpoint: grpcSocket, Transport: confignet.TransportTypeUnix}
		cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr = confignet.AddrConfig{Endpoint: httpSocket, Transport: confignet.TransportTypeUnix}
		require.NoError(t, cfg.Validate())
		return cfg, grpcSocket, httpSocket
	}
	check := func(t *testing.T, cfg *Config, send func([]byte) bool) {
		receivertest.CheckConsumeContract(receivertest.CheckConsumeContractParams{
			T: t, Factory: NewFactory(), Signal: pipeline.SignalTraces, Config: cfg,
			Generator: &generator{t: t, send: send}, GenerateCount: 100,
		})
	}

	t.Run("gRPC", func(t *testing.T) {
		cfg, socket, _ := socketConfig(t)
		check(t, cfg, func(data []byte) (retry bool) {
			// a connection each, since the receiver is another one in each scenario
			conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if !assert.NoError(t, err) {
				return false
			}
			defer conn.Close()
			td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
			assert.NoError(t, err)
			err = exportGRPC(context.Background(), conn, td)
			return status.Code(err) == codes.Unavailable
		})
	})
	t.Run("HTTP", func(t *testing.T) {
		cfg, _, socket := socketConfig(t)
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}
		defer transport.CloseIdleConnections()
		check(t, cfg, func(data []byte) (retry bool) {
			code, _, err := post(&http.Client{Transport: transport}, "http://unix/v1/traces", data, "Content-Type", "application/x-protobuf")
			return err != nil || code == http.StatusServiceUnavailable
		})
	})
}
