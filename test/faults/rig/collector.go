// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package rig

// The collector in the middle: its configuration, its life, and what it says of itself.

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/otelcol-serving/otelcol-serving/test/program"
)

// Section is a part of a configuration.
type Section = map[string]any

// Collector is the built binary with ports and a configuration of its own. It may be started many times, one after
// the other.
type Collector struct {
	GRPC, HTTP, Self string // addresses; Self has its own telemetry
	// Config may be changed before Start or Reload.
	Config Section
	Args   []string // besides --config

	binary string
	dir    string
	*program.Process
}

// NewCollector prepares a collector that forwards spans to traces and derived metrics to metrics, with a queue in
// front of each. dir is for its files.
func NewCollector(binary, dir string, traces, metrics *Backend) *Collector {
	c := &Collector{GRPC: program.Address(program.FreePort()), HTTP: program.Address(program.FreePort()), Self: program.Address(program.FreePort()), binary: binary, dir: dir}
	selfHost, selfPort, _ := net.SplitHostPort(c.Self)
	port, _ := strconv.Atoi(selfPort)
	c.Config = Section{
		"receivers": Section{"llm_span": Section{"protocols": Section{
			"grpc": Section{"endpoint": c.GRPC, "max_recv_msg_size_mib": 64}, "http": Section{"endpoint": c.HTTP},
		}}},
		"processors": Section{"serving_metrics": Section{"interval": "500ms"}},
		"exporters": Section{
			"otlp_grpc/traces":  Exporter(traces, Section{"enabled": true, "queue_size": 100_000}),
			"otlp_grpc/metrics": Exporter(metrics, Section{"enabled": true, "num_consumers": 1}),
		},
		"service": Section{
			"pipelines": Section{
				"traces":  Section{"receivers": []string{"llm_span"}, "processors": []string{"serving_metrics"}, "exporters": []string{"otlp_grpc/traces"}},
				"metrics": Section{"receivers": []string{"llm_span"}, "processors": []string{"serving_metrics"}, "exporters": []string{"otlp_grpc/metrics"}},
			},
			"telemetry": Section{
				"logs": Section{"level": "info", "disable_stacktrace": true},
				"metrics": Section{"readers": []any{
					Section{"pull": Section{"exporter": Section{"prometheus": Section{"host": selfHost, "port": port}}}},
				}},
			},
		},
	}
	// Long: on a machine so busy that an answer comes later, the export would be repeated, or be given up at the end.
	c.At("exporters", "otlp_grpc/metrics")["timeout"] = "15s"
	return c
}

// Exporter is an otlp_grpc exporter that soon tries again.
func Exporter(to *Backend, queue Section) Section {
	return Section{
		"endpoint": to.Address, "tls": Section{"insecure": true}, "timeout": "1s", "sending_queue": queue,
		"retry_on_failure": Section{"enabled": true, "initial_interval": "100ms", "max_interval": "400ms", "max_elapsed_time": "5m"},
	}
}

// At is the part of the configuration at that path, made where there is none.
func (c *Collector) At(path ...string) Section {
	at := c.Config
	for _, name := range path {
		next, ok := at[name].(Section)
		if !ok {
			next = Section{}
			at[name] = next
		}
		at = next
	}
	return at
}

// Write writes the configuration, as JSON, which is YAML.
func (c *Collector) Write() (path string, err error) {
	data, err := json.MarshalIndent(c.Config, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(c.dir, "config.yaml")
	return path, os.WriteFile(path, data, 0o600)
}

const patience = 30 * time.Second // on a busy machine; a good run does not wait for it

// Start starts the collector and waits until it takes spans. It ends with ctx.
func (c *Collector) Start(ctx context.Context, env ...string) error {
	path, err := c.Write()
	if err != nil {
		return err
	}
	if c.Process, err = program.Start(ctx, env, c.binary, append([]string{"--config", path}, c.Args...)...); err != nil {
		return err
	}
	return c.AwaitPort(c.GRPC, patience)
}

// Reload writes the configuration as it is now and has the collector read it.
func (c *Collector) Reload() error {
	if _, err := c.Write(); err != nil {
		return err
	}
	return c.Signal(syscall.SIGHUP)
}

// Terminate is a SIGTERM, and all the time it may take.
func (c *Collector) Terminate() error { return c.Process.Terminate(patience) }

// Own adds up the samples of one of the collector's own metrics whose labels contain all of labels.
func (c *Collector) Own(name string, labels ...string) (float64, error) {
	body, err := Fetch("http://" + c.Self + "/metrics")
	if err != nil {
		return 0, err
	}
	return SumSamples(body, name, labels...)
}

// SumSamples adds up the samples of a metric in Prometheus' text format.
func SumSamples(text, name string, labels ...string) (sum float64, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		rest = strings.TrimPrefix(rest, "_total")
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue next
			}
		}
		fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
		v, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		sum += v
	}
	return sum, lines.Err()
}

// Fetch is the body of what url gives with status 200.
func Fetch(url string) (string, error) {
	c := http.Client{Timeout: 20 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}
