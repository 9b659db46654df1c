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

	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/worker"
)

// runProgram runs the program until the end of the test, and returns the URL of its admin API.
func runProgram(t *testing.T, shop *queuetest.Queue) (url string) {
	t.Helper()
	address, file := ports.Reserve(t).String(), filepath.Join(t.TempDir(), "worker.yaml")
	config := fmt.Sprintf("broker: {url: %q}\nqueues: [{name: shop}]\ndrainTimeout: 100ms\nadminAddress: %q\n", shop.URL, address)
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	t.Setenv("YARDMASTER_CONFIG_FILE", file)
	background.Run(t, func(ctx context.Context) error {
		if err := run(ctx); !errors.Is(err, worker.ErrDrainTimeout) { // the report still runs
			return err
		}
		return nil
	})
	return "http://" + address
}

// get returns a page of the admin API; empty if it does not respond.
func get(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

func TestTheExampleRunsJobsByKindAndShowsTheirProgress(t *testing.T) {
	shop := queuetest.Start(t, "shop")
	url := runProgram(t, shop)
	shop.SendKind("report", `{"month": "2026-03", "pages": 12000}`) // ten minutes, so that it still runs when the orders are charged
	var stats worker.Stats
	poll.Until(t, "the report to show its progress", func() bool {
		return json.Unmarshal([]byte(get(url+"/stats")), &stats) == nil && len(stats.Progress) == 1 && stats.Progress[0].Fraction > 0
	})
	if p := stats.Progress[0]; p.Kind != "report" || !strings.HasSuffix(p.Text, " of 12000") {
		t.Errorf("progress %+v", p)
	}
	shop.SendKind("report", `{"month": "2026-04", "pages": 1}`)
	shop.SendKind("charge", `{"order": "A-17", "cents": 1999}`)
	shop.SendKind("charge", `{"order": "A-18", "cents": 0}`)
	shop.SendKind("charge", `{"order": 19}`)
	shop.SendKind("refund", `{}`)
	poll.Until(t, "both invalid jobs to be dead letters", func() bool { return shop.Stats().DeadLetters == 2 })
	poll.Until(t, "the metrics to count the orders, and not the report that waits or the unknown kind", func() bool {
		metrics := get(url + "/metrics")
		return strings.Contains(metrics, `shop_job_duration_seconds_count{kind="charge"} 3`) &&
			strings.Contains(metrics, `yardmaster_worker_jobs_total{queue="shop",result="retried"} 1`) && !strings.Contains(metrics, `kind="report"`)
	})
	if err := json.Unmarshal([]byte(get(url+"/stats")), &stats); err != nil || stats.InFlight != 1 {
		t.Errorf("stats %+v, want one report that runs: %v", stats, err)
	}
}
