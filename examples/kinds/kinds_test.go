package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/broker/jetstream"
	"github.com/yardmaster/yardmaster/test/natstest"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/worker"
)

// shop is a NATS server with the queue "shop".
type shop struct {
	t      *testing.T
	engine broker.Engine
	server *natstest.Server
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, server: natstest.Start(t)}
	var err error
	if s.engine, err = jetstream.Connect(t.Context(), broker.Credentials{URL: s.server.ClientURL(), Name: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.engine.Disconnect)
	queue := broker.DefaultQueueConfig("shop")
	queue.Owner = broker.QueueOwner{UID: "1", Name: "ns/shop"}
	if _, err := s.engine.EnsureQueue(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) send(kind, payload string) {
	s.t.Helper()
	connection, err := nats.Connect(s.server.ClientURL())
	if err != nil {
		s.t.Fatal(err)
	}
	defer connection.Close()
	message := &nats.Msg{Subject: "yardmaster.shop.ready.default", Header: nats.Header{"Yardmaster-Kind": {kind}}, Data: []byte(payload)}
	if _, err := connection.RequestMsg(message, time.Minute); err != nil {
		s.t.Fatal(err)
	}
}

// runProgram runs the program until the end of the test, and returns the URL of its admin API.
func (s *shop) runProgram() (url string) {
	s.t.Helper()
	address := ports.Reserve(s.t).String()
	file := filepath.Join(s.t.TempDir(), "worker.yaml")
	config := fmt.Sprintf("broker: {url: %q}\nqueues: [{name: shop}]\ndrainTimeout: 100ms\nadminAddress: %q\n", s.server.ClientURL(), address)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.t.Setenv("YARDMASTER_CONFIG_FILE", file)
	ctx, stop := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- run(ctx) }()
	s.t.Cleanup(func() {
		stop()
		if err := <-result; err != nil && !errors.Is(err, worker.ErrDrainTimeout) { // the report still runs
			s.t.Errorf("the program failed: %v", err)
		}
	})
	return "http://" + address
}

// get returns a page of the admin API; empty if it does not respond.
func (s *shop) get(url string) string {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

func TestTheExampleRunsJobsByKindAndShowsTheirProgress(t *testing.T) {
	s := newShop(t)
	url := s.runProgram()
	s.send("report", `{"month": "2026-03", "pages": 12000}`) // ten minutes, so that it still runs when the orders are charged
	var stats worker.Stats
	poll.Until(t, "the report to show its progress", func() bool {
		return json.Unmarshal([]byte(s.get(url+"/stats")), &stats) == nil && len(stats.Progress) == 1 && stats.Progress[0].Fraction > 0
	})
	if p := stats.Progress[0]; p.Kind != "report" || !strings.HasSuffix(p.Text, " of 12000") {
		t.Errorf("progress %+v", p)
	}
	s.send("report", `{"month": "2026-04", "pages": 1}`)
	s.send("charge", `{"order": "A-17", "cents": 1999}`)
	s.send("charge", `{"order": "A-18", "cents": 0}`)
	s.send("charge", `{"order": 19}`)
	s.send("refund", `{}`)
	poll.Until(t, "both invalid jobs to be dead letters", func() bool {
		letters, err := s.engine.DeadLetters("shop").List(t.Context(), 0, 10)
		return err == nil && len(letters) == 2
	})
	poll.Until(t, "the metrics to count the orders, and not the report that waits or the unknown kind", func() bool {
		metrics := s.get(url + "/metrics")
		return strings.Contains(metrics, `shop_job_duration_seconds_count{kind="charge"} 3`) &&
			strings.Contains(metrics, `yardmaster_worker_jobs_total{queue="shop",result="retried"} 1`) && !strings.Contains(metrics, `kind="report"`)
	})
	if err := json.Unmarshal([]byte(s.get(url+"/stats")), &stats); err != nil || stats.InFlight != 1 {
		t.Errorf("stats %+v, want one report that runs: %v", stats, err)
	}
}
