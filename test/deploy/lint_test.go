// Copyright The otelcol-serving Authors
// SPDX-License-Identifier: Apache-2.0

package deploy

// Dashboards, rules and runbook say what the code has, and nothing that spans cannot say.

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/otelcol-serving/otelcol-serving/internal/diagnosis"
)

// check checks that each series of a query is known, with its labels and their values, and gives back the metrics.
func (k known) check(t *testing.T, where, query string) []string {
	t.Helper()
	series := selectors(t, anything.in(query))
	var metrics []string
	for _, s := range series {
		metrics = append(metrics, k[s.Name].metric)
	}
	assert.Empty(t, k.faults(series), where)
	return metrics
}

// faults are what is wrong with series that a query asks for.
func (k known) faults(series []*parser.VectorSelector) (faults []string) {
	values := labelValues()
	for _, s := range series {
		known, ok := k[s.Name]
		if !ok {
			faults = append(faults, "there is no "+s.Name)
			continue
		}
		for _, m := range matched(s) {
			if !known.labels[m.Name] {
				faults = append(faults, s.Name+" has no label "+m.Name)
			}
			for _, value := range alternatives(m) {
				if all, ok := values[m.Name]; ok && !all[value] {
					faults = append(faults, m.Name+" is never "+value)
				}
			}
		}
	}
	return faults
}

// alternatives are the values that a matcher spells out.
func alternatives(m *labels.Matcher) []string {
	switch {
	case m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual:
		return []string{m.Value}
	case strings.ContainsAny(m.Value, ".*+"):
		return nil
	}
	return strings.Split(m.Value, "|")
}

// overclaims are things that nobody can know from spans.
var overclaims = regexp.MustCompile(`(?i)gpu.?util|kv.?cache (is |was )?(nearly )?full|preempt|gpu (is |was )?(busy|idle|saturated)`)

func TestDashboards(t *testing.T) {
	metrics := knownMetrics(t, readRules(t))
	dashboards := readDashboards(t)
	uids := map[string]bool{}
	for _, d := range dashboards {
		assert.False(t, uids[d.UID], "two dashboards are %s", d.UID)
		uids[d.UID] = true
	}
	for _, d := range dashboards {
		t.Run(d.file, func(t *testing.T) {
			assert.NotEmpty(t, d.Title)
			assert.NotEmpty(t, d.Description)
			assert.GreaterOrEqual(t, d.SchemaVersion, 38, "Grafana 10")
			assert.NotRegexp(t, overclaims, d.text)

			assert.Regexp(t, `^now-\d+[mhd]$`, d.Time.From)
			assert.Equal(t, "now", d.Time.To)
			assert.NotRegexp(t, `20\d\d-\d\d-\d\d|"(from|to|time|timeFrom)": *"?1\d{9}`, d.text, "an absolute time")
			for _, link := range regexp.MustCompile(`/d/([a-z-]+)/`).FindAllStringSubmatch(d.text, -1) {
				assert.True(t, uids[link[1]], "a link to dashboard %s, which does not exist", link[1])
			}

			for _, uid := range regexp.MustCompile(`"uid": "([^"]*)"`).FindAllStringSubmatch(d.text, -1) {
				assert.Contains(t, []string{"${datasource}", d.UID}, uid[1], "a data source of somebody")
			}
			require.NotEmpty(t, d.Templating.List)
			assert.Equal(t, "datasource", d.Templating.List[0].Name)
			assert.Equal(t, "datasource", d.Templating.List[0].Type)
			assert.Equal(t, "prometheus", d.Templating.List[0].Query)
			var names []string
			for _, v := range d.Templating.List {
				names = append(names, v.Name)
				assert.NotEmpty(t, v.Label)
				assert.NotEmpty(t, v.Description, v.Name)
				if value, ok := v.Current["value"]; ok {
					assert.Equal(t, []any{"$__all"}, value, "variable %s has the choice of somebody", v.Name)
				}
				if v.Type == "query" {
					query, _ := v.Query.(map[string]any)["query"].(string)
					parts := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(query)
					require.Len(t, parts, 3, query)
					metrics.check(t, "variable "+v.Name, parts[1])
					assert.True(t, metrics[selectors(t, anything.in(parts[1]))[0].Name].labels[parts[2]], query)
				}
			}

			ids := map[int]bool{}
			taken := map[[2]int]string{}
			for _, p := range d.Panels {
				assert.False(t, ids[p.ID], "two panels are %d", p.ID)
				ids[p.ID] = true
				assert.NotEmpty(t, p.Title, "panel %d", p.ID)
				assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
				for x := range p.GridPos.W {
					for y := range p.GridPos.H {
						cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
						assert.Empty(t, taken[cell], "%s covers another panel", p.Title)
						taken[cell] = p.Title
					}
				}
				if p.Type == "row" {
					continue
				}
				checkPanel(t, metrics, p, names)
			}
		})
	}
}

// Each metric that our components have of their own health is on the dashboard of the collector's, so that none is there for nobody.
func TestOwnTelemetryIsShown(t *testing.T) {
	shown := map[string]bool{}
	metrics := knownMetrics(t, readRules(t))
	for _, d := range readDashboards(t) {
		if d.file != "collector.json" {
			continue
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, metric := range metrics.check(t, p.Title, target.Expr) {
					shown[metric] = true
				}
			}
		}
	}
	for _, document := range ownTelemetry(t)[:2] {
		for _, m := range regexp.MustCompile(`(?m)^### (otelcol_\S+)$`).FindAllStringSubmatch(read(t, document[len(root):]), -1) {
			assert.True(t, shown[m[1]], "%s is in no panel", m[1])
		}
	}
}

func checkPanel(t *testing.T, metrics known, p *panel, variables []string) {
	t.Helper()
	assert.NotEmpty(t, p.FieldConfig.Defaults.Unit, "%s has no unit", p.Title)
	assert.Greater(t, len(p.FieldConfig.Defaults.NoValue), 0, "%s does not say why it may be empty", p.Title)
	paragraphs := strings.Split(p.Description, "\n\n")
	require.Len(t, paragraphs, 2, "%s: what it is, and its metric with the formula", p.Title)
	assert.NotEmpty(t, paragraphs[0], p.Title)
	require.NotNil(t, p.Datasource, p.Title)
	assert.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
	require.NotEmpty(t, p.Targets, p.Title)
	refs := map[string]bool{}
	for _, target := range p.Targets {
		assert.False(t, refs[target.RefID], "%s has two queries %s", p.Title, target.RefID)
		refs[target.RefID] = true
		require.NotNil(t, target.Datasource, p.Title)
		assert.Equal(t, "${datasource}", target.Datasource.UID, p.Title)
		for _, metric := range metrics.check(t, p.Title, target.Expr) {
			assert.Contains(t, paragraphs[1], "`"+metric+"`", "%s: the description does not end with the metric", p.Title)
		}
		for _, name := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
			assert.True(t, name[1] == "__rate_interval" || slices.Contains(variables, name[1]), "%s: no variable %s", p.Title, name[1])
		}
		for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
			for _, s := range selectors(t, anything.in(target.Expr)) {
				kept := !strings.Contains(target.Expr, " by (") && metrics[s.Name].labels[label[1]]
				assert.True(t, kept || regexp.MustCompile(`\b`+label[1]+`\b`).MatchString(target.Expr), "%s: the query does not keep %s of the legend", p.Title, label[1])
			}
		}
	}
}

// Every verdict has a number and a word on the dashboards, and a row in the runbook.
func TestVerdicts(t *testing.T) {
	runbook := read(t, "docs", "runbook.md")
	for _, d := range readDashboards(t) {
		if !strings.Contains(d.text, "llm_serving_engine_verdict_ratio") {
			continue
		}
		for v := range diagnosis.NumVerdicts {
			assert.Contains(t, d.text, `verdict=\"`+v.String()+`\"`, d.file)
		}
	}
	for v := range diagnosis.NumVerdicts {
		assert.Contains(t, runbook, "\n| `"+v.String()+"` |", "the runbook does not explain it")
	}
}

const runbookURL = "https://github.com/otelcol-serving/otelcol-serving/blob/main/docs/runbook.md#"

func TestRules(t *testing.T) {
	rules := readRules(t)
	metrics := knownMetrics(t, rules)
	names := map[string]bool{}
	for _, r := range rules {
		assert.True(t, r.Record == "slo:llm_serving_request_objective:ratio" || !names[r.name()], "%s is there twice", r.name())
		names[r.name()] = true
		metrics.check(t, r.name(), r.Expr)
		if r.Record != "" {
			assert.Regexp(t, `^[a-z_]+:[a-z0-9_]+:[a-z0-9_]+$`, r.Record, "level:metric:operation")
			for _, label := range level(r.Record) {
				assert.NotEmpty(t, label, "%s: a level that is no label", r.Record)
			}
			continue
		}
		assert.Positive(t, duration(t, r.For), r.Alert)
		assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.Contains(t, r.Annotations["description"], "$value", "%s does not say how much", r.Alert)
		assert.NotRegexp(t, overclaims, r.Annotations["summary"]+r.Annotations["description"], r.Alert)
		assert.Equal(t, runbookURL+strings.ToLower(r.Alert), r.Annotations["runbook_url"])
	}
}

// A rule that nothing uses is dead weight: each is in an alert, another rule, a dashboard, the runbook, or is one of those
// that are there for users' own dashboards.
func TestRulesUsed(t *testing.T) {
	rules := readRules(t)
	used := map[string]bool{}
	note := func(query string) {
		for _, s := range selectors(t, anything.in(query)) {
			used[s.Name] = true
		}
	}
	for _, r := range rules {
		note(r.Expr)
	}
	for _, d := range readDashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				note(target.Expr)
			}
		}
	}
	for _, query := range runbookQueries(t) {
		note(query)
	}
	readme := read(t, "deploy", "README.md")
	for _, r := range rules {
		if r.Record != "" {
			assert.True(t, used[r.Record] || strings.Contains(readme, "`"+r.Record+"`"), "nothing uses %s, and deploy/README.md does not name it", r.Record)
		}
	}
}

// The runbook has a section for every alert and no other, with all that a section has to say, and its queries are good.
func TestRunbook(t *testing.T) {
	text := read(t, "docs", "runbook.md")
	rules := readRules(t)
	metrics := knownMetrics(t, rules)
	sections := map[string]string{}
	for _, section := range strings.Split(text, "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		body, _, _ = strings.Cut(body, "\n## ")
		sections[title] = body
	}
	for _, r := range rules {
		if r.Alert == "" {
			continue
		}
		body, ok := sections[r.Alert]
		if !assert.True(t, ok, "docs/runbook.md has no section %s", r.Alert) {
			continue
		}
		delete(sections, r.Alert)
		for _, word := range []string{"**Means.**", "**Sure?**", "**Look at.**", "**Do.**", "**False alarm.**"} {
			assert.Contains(t, body, word, r.Alert)
		}
	}
	assert.Empty(t, sections, "sections without an alert")
	for _, query := range runbookQueries(t) {
		metrics.check(t, "docs/runbook.md", query)
	}
	assert.NotEmpty(t, runbookQueries(t))
}

// Each flag of vLLM that the runbook names is in its table of flags, with versions and source.
func TestRunbookFlags(t *testing.T) {
	text, table, ok := strings.Cut(read(t, "docs", "runbook.md"), "\n## Flags\n")
	require.True(t, ok)
	flags := regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, flags)
	for _, flag := range flags {
		assert.Regexp(t, regexp.QuoteMeta(flag[1])+"[ `]", table, "no versions, no source")
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `--.*\\|$").FindAllString(table, -1) {
		assert.Regexp(t, `\[[^]]+\]\(|the same`, row, "no source")
	}
}

// Every alert has a case in rules_test.yaml in which it fires, and one in which it does not.
func TestRulesTested(t *testing.T) {
	var file struct {
		Tests []struct {
			Rules []struct {
				Alertname string      `yaml:"alertname"`
				Expected  []yaml.Node `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy", "prometheus", "rules_test.yaml")), &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, r := range test.Rules {
			if len(r.Expected) > 0 {
				fires[r.Alertname] = true
			} else {
				silent[r.Alertname] = true
			}
		}
	}
	for _, r := range readRules(t) {
		if r.Alert != "" {
			assert.True(t, fires[r.Alert], "no case in which %s fires", r.Alert)
			assert.True(t, silent[r.Alert], "no case in which %s does not fire", r.Alert)
		}
	}
}

// The lint itself sees what it is for.
func TestLintFinds(t *testing.T) {
	metrics := knownMetrics(t, readRules(t))
	for query, fault := range map[string]string{
		`rate(llm_serving_request_count[5m])`:                              "there is no llm_serving_request_count",
		`gen_ai_server_time_to_first_token_seconds`:                        "there is no gen_ai_server_time_to_first_token_seconds",
		`job_instance:llm_serving_device_utilization:ratio_rate1m`:         "there is no job_instance:llm_serving_device_utilization:ratio_rate1m",
		`sum(rate(otelcol_serving_metrics_requests_total[5m]))`:            "there is no otelcol_serving_metrics_requests_total",
		`llm_serving_engine_occupancy_ratio{model="m"}`:                    "llm_serving_engine_occupancy_ratio has no label model",
		`llm_serving_engine_time_seconds_total{state="busy"}`:              "state is never busy",
		`llm_serving_engine_time_seconds_total{state=~"prefill|decoding"}`: "state is never decoding",
	} {
		assert.Equal(t, []string{fault}, metrics.faults(selectors(t, query)), query)
	}
	assert.Empty(t, metrics.faults(selectors(t, `sum by (state) (rate(llm_serving_engine_time_seconds_total{state="idle"}[5m] offset 1h))`)))
	assert.Regexp(t, overclaims, "GPU utilization is high")
}
