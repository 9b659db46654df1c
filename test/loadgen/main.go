// Command loadgen sends jobs to the example worker, and verifies from the worker's ledger that they were done.
//
//	loadgen send -url nats://nats:4222 -queue orders -run a -jobs 5000 -rate 200 -milliseconds 300
//	loadgen verify -file /ledger/lines -run a -jobs 5000
//
// Instead of a number of jobs, it sends jobs until another command ends it:
//
//	loadgen send -url nats://nats:4222 -queue orders -run c -rate 20 -until /ledger/c.end
//	loadgen end -file /ledger/c.end
//	loadgen verify -file /ledger/lines -run c -jobs-from /ledger/c.end
//
// The result of the verification is JSON. The exit code is 1 unless each job was done exactly once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/internal/clock"
	"github.com/yardmaster/yardmaster/test/loadgen/verify"
)

// maxUnacknowledged is the number of jobs that may wait for the broker's acknowledgement at a time.
const maxUnacknowledged = 256

// brokerTimeout is the time that the broker may be unavailable.
const brokerTimeout = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCommand(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context) error {
	if len(os.Args) < 2 {
		return errors.New("a command is required: send, end or verify")
	}
	switch os.Args[1] {
	case "send":
		return parseAndSend(ctx, os.Args[2:])
	case "end":
		return endSending(os.Args[2:])
	case "verify":
		return verifyLedger(os.Args[2:])
	default:
		return fmt.Errorf("unknown command %q, must be send, end or verify", os.Args[1])
	}
}

func endSending(args []string) error {
	f := flag.NewFlagSet("end", flag.ContinueOnError)
	file := f.String("file", "", "path of the file of send -until")
	if err := f.Parse(args); err != nil {
		return err
	}
	return os.WriteFile(*file, nil, 0o600)
}

func verifyLedger(args []string) error {
	f := flag.NewFlagSet("verify", flag.ContinueOnError)
	file := f.String("file", "/ledger/lines", "path of the ledger")
	name := f.String("run", "run", "prefix of the names of the jobs")
	jobs := f.Int("jobs", 1, "number of jobs that were sent")
	f.Func("jobs-from", "path of the file of send -until, which contains the number of jobs", func(path string) error {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		*jobs, err = strconv.Atoi(string(raw))
		return err
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	ledger, err := os.Open(*file)
	if err != nil {
		return err
	}
	defer ledger.Close()
	result, err := verify.CheckLedger(ledger, *name, *jobs)
	if err != nil {
		return err
	}
	err = json.NewEncoder(os.Stdout).Encode(result)
	if err == nil && !result.EachDoneOnce() {
		err = errors.New("not every job was done exactly once")
	}
	return err
}

type jobBatch struct {
	url, queue, run    string
	jobs, milliseconds int
	rate               float64
	// until is a file. If it is set, jobs are sent until it exists, instead of a number of them. Then it contains
	// the number of jobs that were sent.
	until string
}

func parseAndSend(ctx context.Context, args []string) error {
	var b jobBatch
	f := flag.NewFlagSet("send", flag.ContinueOnError)
	f.StringVar(&b.url, "url", nats.DefaultURL, "URL of the broker")
	f.StringVar(&b.queue, "queue", "orders", "name of the queue")
	f.StringVar(&b.run, "run", "run", "prefix of the names of the jobs")
	f.IntVar(&b.jobs, "jobs", 1, "number of jobs")
	f.Float64Var(&b.rate, "rate", 0, "jobs per second; 0 means as fast as the broker accepts them")
	f.StringVar(&b.until, "until", "", "path of a file: send jobs until it exists, instead of -jobs, and write the number of jobs to it")
	f.IntVar(&b.milliseconds, "milliseconds", 100, "duration of each job in milliseconds")
	if err := f.Parse(args); err != nil {
		return err
	}
	connection, err := nats.Connect(b.url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	startedAt := time.Now()
	if err := b.sendJobs(ctx, stream, startedAt); err != nil {
		return err
	}
	fmt.Printf("sent all jobs in %s\n", time.Since(startedAt).Round(time.Millisecond))
	return nil
}

func (b *jobBatch) sendJobs(ctx context.Context, stream jetstream.JetStream, startedAt time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxUnacknowledged)
	sent := 0
	for ; b.until != "" || sent < b.jobs; sent++ {
		due := startedAt
		if b.rate > 0 {
			due = startedAt.Add(time.Duration(float64(sent) / b.rate * float64(time.Second)))
		}
		if err := clock.SleepContext(ctx, time.Until(due)); err != nil {
			return errors.Join(err, group.Wait())
		}
		if b.hasEnded() {
			break
		}
		name := verify.JobName(b.run, sent)
		group.Go(func() error {
			return sendJob(ctx, stream, "yardmaster."+b.queue+".ready.default", name, fmt.Sprintf(`{"id":%q,"milliseconds":%d}`, name, b.milliseconds))
		})
	}
	if err := group.Wait(); err != nil || b.until == "" {
		return err
	}
	return os.WriteFile(b.until, []byte(strconv.Itoa(sent)), 0o600)
}

func (b *jobBatch) hasEnded() bool {
	if b.until == "" {
		return false
	}
	_, err := os.Stat(b.until)
	return err == nil
}

// sendJob retries until the broker has acknowledged the job. The message ID prevents duplicates when only an acknowledgement was lost.
func sendJob(ctx context.Context, stream jetstream.JetStream, subject, id, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	for {
		err := publishOnce(ctx, stream, subject, id, payload)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := clock.SleepContext(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// publishTimeout is the time to wait for an acknowledgement before the job is sent again.
const publishTimeout = 2 * time.Second

func publishOnce(ctx context.Context, stream jetstream.JetStream, subject, id, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := stream.Publish(ctx, subject, []byte(payload), jetstream.WithMsgID(id))
	return err
}
