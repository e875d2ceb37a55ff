// Prometheus' own engine evaluates expressions over series: one JSON object a line, one array of answers a line.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// question has series in the notation of Prometheus' tests, an expression, and the minutes at which it is evaluated.
type question struct {
	Load    string `json:"load"`
	Expr    string `json:"expr"`
	Minutes int    `json:"minutes"`
}

// result is one element of the vector that an expression gives.
type result struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

// host stands for testing.T, which the test storage wants.
type host struct{}

func (host) Errorf(format string, args ...interface{}) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
func (host) FailNow()                                  { os.Exit(1) }

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var asked question
		check(json.Unmarshal(lines.Bytes(), &asked))
		check(json.NewEncoder(os.Stdout).Encode(answer(asked)))
	}
	check(lines.Err())
}

func answer(asked question) [][]result {
	storage := promqltest.LoadedStorage(host{}, asked.Load)
	defer storage.Close()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})
	answers := make([][]result, asked.Minutes)
	for minute := range answers {
		query, err := engine.NewInstantQuery(context.Background(), storage, nil, asked.Expr, time.Unix(int64(minute)*60, 0))
		check(err)
		found := query.Exec(context.Background())
		check(found.Err)
		answers[minute] = vector(found.Value)
		query.Close()
	}
	return answers
}

func vector(value parser.Value) []result {
	found := []result{}
	if samples, ok := value.(promql.Vector); ok {
		for _, sample := range samples {
			found = append(found, result{sample.Metric.Map(), sample.F})
		}
	}
	return found
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
