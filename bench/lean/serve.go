// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package main

// Two servers that do nothing but receive spans and read the requests in them, as a collector does and as the prototype does. Each
// is this program again, in a process of its own, so that its CPU time is known.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"

	"github.com/otelcol-serving/otelcol-serving/bench/internal/lean"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/load"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/process"
	"github.com/otelcol-serving/otelcol-serving/bench/internal/spans"
	"github.com/otelcol-serving/otelcol-serving/internal/llmrequest"
)

const (
	serveWhole = "whole"
	serveLean  = "lean"
)

// serve runs a server until SIGTERM.
func serve(how, port string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return err
	}
	var server *grpc.Server
	if how == serveLean {
		server = grpc.NewServer(grpc.ForceServerCodecV2(load.Raw{}))
		server.RegisterService(&grpc.ServiceDesc{
			ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService",
			HandlerType: (*any)(nil),
			Methods:     []grpc.MethodDesc{{MethodName: "Export", Handler: exportLean}},
		}, struct{}{})
	} else {
		server = grpc.NewServer()
		ptraceotlp.RegisterGRPCServer(server, &wholeServer{})
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	go func() {
		<-end
		server.Stop()
	}()
	return server.Serve(listener)
}

var errNoRequest = errors.New("no request in the export")

func exportLean(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	var wire []byte
	if err := decode(&wire); err != nil {
		return nil, err
	}
	n := 0
	err := lean.Requests(wire, func(_ *lean.Resource, r *llmrequest.Request) {
		if r.Has(llmrequest.E2E) {
			n++
		}
	})
	if err == nil && n == 0 {
		err = errNoRequest
	}
	return []byte{}, err
}

type wholeServer struct {
	ptraceotlp.UnimplementedGRPCServer
}

func (*wholeServer) Export(_ context.Context, request ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	if readAll(request.Traces()) == 0 {
		return ptraceotlp.NewExportResponse(), errNoRequest
	}
	return ptraceotlp.NewExportResponse(), nil
}

// served is the CPU time of a server per span, in µs.
func served(ctx context.Context, kind spans.Kind, how string, seconds int) (perSpan float64, err error) {
	port, err := process.FreePort()
	if err != nil {
		return 0, err
	}
	server, err := process.StartSelf(ctx, port, "-serve", how, "-port", strconv.Itoa(port))
	if err != nil {
		return 0, err
	}
	perSpan, err = loaded(ctx, server, port, kind, func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(seconds) * time.Second):
			return nil
		}
	})
	if stopErr := server.Stop(); stopErr != nil {
		err = errors.Join(err, fmt.Errorf("%s: %w", how, stopErr))
	}
	return perSpan, err
}

// loaded puts load on a server while f runs, and returns the CPU time that it used for each span meanwhile, in µs.
func loaded(ctx context.Context, server *process.Collector, port int, kind spans.Kind, f func() error) (perSpan float64, err error) {
	l, err := load.Start(load.Config{Port: port, Kind: kind, Batch: 100, Connections: 8})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(3 * time.Second): // of warming up
	}
	before, err := server.CPU()
	if err != nil {
		return 0, err
	}
	sent := l.Sent()
	if err = f(); err != nil {
		return 0, err
	}
	after, err := server.CPU()
	return (after - before).Seconds() * 1e6 / float64(l.Sent()-sent), err
}
