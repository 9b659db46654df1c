// Command plain is a worker that knows nothing of queues: an HTTP server that is sent jobs,
// or a command that finds one on its standard input. It writes into the ledger what it has
// done, and does nothing about SIGTERM.
//
//	plain serve
//	plain once
//
// What a job is called says what comes of it: "bad-" is refused for good, and "later-" the
// first time. With BROKEN set all fail, as in a bad release. VERSION is what the ledger
// has for the revision.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

func main() {
	if err := runCommand(); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	}
}

func runCommand() error {
	if len(os.Args) == 2 && os.Args[1] == "serve" {
		return serveHTTP()
	}
	payload, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	switch status := doJob(payload, os.Getenv("YARDMASTER_JOB_ATTEMPT")); status {
	case http.StatusOK:
		return nil
	case http.StatusBadRequest:
		os.Exit(65)
	case http.StatusServiceUnavailable:
		os.Exit(75)
	default:
		return fmt.Errorf("%d", status)
	}
	return nil
}

func serveHTTP() error {
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: time.Second}
	server.Handler = http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		payload, err := io.ReadAll(request.Body)
		if err != nil {
			return // who sent it hears no answer
		}
		answer.WriteHeader(doJob(payload, request.Header.Get("Yardmaster-Job-Attempt")))
	})
	return server.ListenAndServe()
}

// doJob does a job, and says as an HTTP status what came of it.
func doJob(payload []byte, attempt string) int {
	var order struct {
		ID           string `json:"id"`
		Milliseconds int    `json:"milliseconds"`
	}
	switch {
	case os.Getenv("BROKEN") != "":
		return http.StatusInternalServerError
	case json.Unmarshal(payload, &order) != nil, strings.HasPrefix(order.ID, "bad-"):
		return http.StatusBadRequest
	case strings.HasPrefix(order.ID, "later-") && attempt == "1":
		return http.StatusServiceUnavailable
	}
	// The line is written in the middle: who is stopped after it leaves a job that looks
	// undone and is not, as it is with real work.
	half := time.Duration(order.Milliseconds) * time.Millisecond / 2
	time.Sleep(half)
	if err := appendToLedger(order.ID, attempt); err != nil {
		return http.StatusInternalServerError
	}
	time.Sleep(half)
	return http.StatusOK
}

func appendToLedger(id, attempt string) error {
	ledger, err := os.OpenFile(os.Getenv("LEDGER"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the ledger is where the test says
	if err != nil {
		return err
	}
	defer ledger.Close()
	pod, err := os.Hostname()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(ledger, "%s %s %s %s\n", id, pod, cmp.Or(os.Getenv("VERSION"), "-"), attempt)
	return err
}
