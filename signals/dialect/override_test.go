package dialect_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/signals/dialect"
)

func with(t *testing.T, o dialect.Override) *dialect.Table {
	t.Helper()
	table, err := dialect.NewTable(dialect.Dialects()...).With(o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestOverride(t *testing.T) {
	const page = "vllm:num_requests_running 3\nvllm:num_requests_waiting 1\nmy_queue{kind=\"a\"} 40\nmy_queue{kind=\"b\"} 7\nmy_cache_percent 37\n"
	queue := dialect.Names{{Name: "my_queue", Label: "kind", Is: "b"}}
	cache := dialect.Names{{Name: "my_cache_percent", Scale: 0.01}}
	tests := []struct {
		name     string
		override dialect.Override
		want     read
	}{
		{"nothing", dialect.Override{}, read{Dialect: "vllm", Running: 3.0, Waiting: 1.0}},
		{
			"names of a dialect",
			dialect.Override{Dialect: "vllm", Fields: map[dialect.Field]dialect.Names{dialect.Waiting: queue, dialect.KVUsage: cache}},
			read{Dialect: "vllm", Running: 3.0, Waiting: 7.0, KVUsage: 0.37},
		},
		{
			"names of an engine that has no dialect",
			dialect.Override{Fields: map[dialect.Field]dialect.Names{dialect.Waiting: queue}},
			read{Dialect: "custom", Waiting: 7.0},
		},
		{"another dialect", dialect.Override{Dialect: "sglang"}, read{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := dialect.NewReader(with(t, tt.override)).Read(strings.NewReader(page), "")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(view(&p), tt.want); diff != "" {
				t.Errorf("values (-got +want):\n%s", diff)
			}
		})
	}
}

func TestOverrideOfAnUnknownDialect(t *testing.T) {
	_, err := dialect.NewTable(dialect.Dialects()...).With(dialect.Override{Dialect: "vlm"})
	if err == nil || !strings.Contains(err.Error(), `unknown dialect "vlm": write one of ["vllm"`) {
		t.Errorf("err = %v, want one that names the dialects", err)
	}
}

func TestPaths(t *testing.T) {
	table := dialect.NewTable(dialect.Dialects()...)
	for likely, want := range map[string][]string{
		"":       {"/metrics", "/prometheus/metrics"},
		"vllm":   {"/metrics", "/prometheus/metrics"},
		"trtllm": {"/prometheus/metrics", "/metrics"},
	} {
		if diff := cmp.Diff(table.Paths(likely), want); diff != "" {
			t.Errorf("Paths(%q) (-got +want):\n%s", likely, diff)
		}
	}
	for _, o := range []dialect.Override{{Paths: []string{"/m"}}, {Paths: []string{"/m"}, Dialect: "vllm"}} {
		if diff := cmp.Diff(with(t, o).Paths("vllm"), []string{"/m"}); diff != "" {
			t.Errorf("Paths with %+v (-got +want):\n%s", o, diff)
		}
	}
}

func TestFieldsHaveNames(t *testing.T) {
	for _, f := range []dialect.Field{
		dialect.Running, dialect.Waiting, dialect.KVUsage, dialect.TTFT, dialect.TBT, dialect.PromptTokens, dialect.GeneratedTokens,
	} {
		if got, err := dialect.ParseField(f.String()); err != nil || got != f {
			t.Errorf("ParseField(%q) = %v, %v", f.String(), got, err)
		}
	}
	if _, err := dialect.ParseField("runing"); err == nil || !strings.Contains(err.Error(), `"running"`) {
		t.Errorf("err = %v, want one that names the fields", err)
	}
}
