package workercommand

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/internal/pod/workerclient"
	"github.com/yardmaster/yardmaster/test/background"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/ports"
	"github.com/yardmaster/yardmaster/test/queuetest"
	"github.com/yardmaster/yardmaster/test/require"
)

const (
	releaseJobs = 3
	// lateness is when an application that listens late does.
	lateness = 1500 * time.Millisecond
)

// What sidecars and commands report of an application with each defect, on a real server. TestReleasesOfEachRuntimeWithEachDefect of package
// workerpool has what the operator makes of it.
func TestAVersionTakesNoMessagesThatItCannotRun(t *testing.T) {
	t.Parallel()
	for _, runtime := range []string{"sidecar", "exec"} {
		for _, defect := range []string{"none", "never listens", "listens late", "refuses", "hangs", "crashes", "answers 500"} {
			t.Run(runtime+" "+defect, func(t *testing.T) {
				t.Parallel()
				q, admin := queuetest.Start(t, "orders"), ports.Reserve(t).String()
				for range releaseJobs {
					q.Send("x")
				}
				arguments := []string{"--broker-url", q.URL, "--queues", "orders", "--admin-address", admin, "--drain-timeout", "1ms"}
				if runtime == "sidecar" {
					arguments = append(arguments, "--forward", "http://"+startApplication(t, defect))
				} else {
					arguments = append(arguments, "--exec", "--", writeApplication(t, defect))
				}
				background.Run(t, func(ctx context.Context) error {
					_ = Run(ctx, arguments, io.Discard, io.Discard) // it is killed while jobs hang
					return nil
				})
				requireOutcome(t, q, admin, runtime, defect)
			})
		}
	}
}

func requireOutcome(t *testing.T, q *queuetest.Queue, admin, runtime, defect string) {
	t.Helper()
	client := workerclient.New()
	works, observations := defect == "none" || defect == "listens late", 0
	poll.Until(t, "what the worker reports", func() bool {
		stats, err := client.FetchStats(t.Context(), admin)
		if err != nil {
			return false
		}
		succeeded, failed, snoozed := ptr.Deref(stats.Succeeded, 0), ptr.Deref(stats.Failed, 0), ptr.Deref(stats.Snoozed, 0)
		isReady := ptr.Deref(stats.Attached, false)
		onBroker := q.Stats()
		left := onBroker.Ready + onBroker.InFlight + onBroker.DeadLetters
		require.True(t, works || succeeded == 0 && left == releaseJobs, "%d succeeded, %+v on the broker", succeeded, onBroker)
		switch {
		case works:
			return succeeded == releaseJobs && failed == 0 && left == 0 && isReady
		case runtime == "sidecar" && defect == "never listens":
			if stats.InFlight+stats.Prefetched+snoozed+failed > 0 || onBroker.Ready != releaseJobs || isReady {
				t.Fatalf("it takes messages: %+v, %+v", stats, onBroker)
			}
			observations++
			return observations == 20 && stats.Unavailable != ""
		case runtime == "sidecar" && defect == "crashes":
			return stats.Unavailable != "" && !isReady && failed > 0 && stats.InFlight+stats.Prefetched == 0
		case defect == "never listens":
			return snoozed > 0 && failed == 0
		case defect == "hangs":
			return stats.InFlight == releaseJobs
		}
		return failed >= releaseJobs
	})
}

// startApplication starts an HTTP server with a defect, and returns its address.
func startApplication(t *testing.T, defect string) (address string) {
	t.Helper()
	address = ports.Reserve(t).String()
	ended := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute}
	server.Handler = http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) {
		switch defect {
		case "hangs":
			<-ended
		case "answers 500":
			response.WriteHeader(http.StatusInternalServerError)
		case "crashes":
			go func() { _ = server.Close() }()
			<-ended
		}
	})
	var serving sync.WaitGroup
	t.Cleanup(func() { close(ended); _ = server.Close(); serving.Wait() })
	listen := func() {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		if defect == "refuses" {
			listener = refusingListener{listener}
		}
		serving.Go(func() { _ = server.Serve(listener) })
	}
	switch defect {
	case "never listens":
	case "listens late":
		timer := time.AfterFunc(lateness, listen)
		t.Cleanup(func() { timer.Stop() })
	default:
		listen()
	}
	return address
}

// refusingListener closes each connection that it accepts.
type refusingListener struct{ net.Listener }

func (l refusingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		_ = conn.Close()
	}
	return conn, err
}

// writeApplication writes a command with a defect, and returns its path. A command that does not "listen" cannot start.
func writeApplication(t *testing.T, defect string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "application")
	write := func(text string) {
		if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o700), os.Rename(path+".new", path)); err != nil {
			t.Error(err)
		}
	}
	const works, missing = "#!/bin/sh\nexec cat >/dev/null\n", "#!/no/such/interpreter\n"
	write(map[string]string{
		"none": works, "never listens": missing, "listens late": missing, "refuses": "#!/bin/sh\nexit 75\n", "hangs": "#!/bin/sh\nexec sleep 600\n",
		"crashes": "#!/bin/sh\nkill -9 $$\n", "answers 500": "#!/bin/sh\nexit 1\n",
	}[defect])
	if defect == "listens late" {
		timer := time.AfterFunc(lateness, func() { write(works) })
		t.Cleanup(func() { timer.Stop() })
	}
	return path
}
