// Command ledger sends jobs for the example worker, and judges what came of them.
//
//	ledger send -url nats://nats:4222 -queue orders -run a -jobs 5000 -rate 200 -milliseconds 300
//	ledger judge -file /ledger/lines -run a -jobs 5000
//
// The verdict is JSON; the exit code is 1 if not each job was done once.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/yardmaster/yardmaster/test/loadgen/verify"
)

// maxUnacknowledged is how many jobs may be on their way to the broker at once.
const maxUnacknowledged = 256

// brokerTimeout is how long the broker may be away in between.
const brokerTimeout = 5 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runCommand(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ledger:", err)
		os.Exit(1)
	}
}

func runCommand(ctx context.Context) error {
	if len(os.Args) < 2 {
		return errors.New("say send or judge")
	}
	switch os.Args[1] {
	case "send":
		return parseAndSend(ctx, os.Args[2:])
	case "judge":
		return verifyLedger(os.Args[2:])
	default:
		return fmt.Errorf("%q is neither send nor judge", os.Args[1])
	}
}

func verifyLedger(args []string) error {
	f := flag.NewFlagSet("judge", flag.ContinueOnError)
	file := f.String("file", "/ledger/lines", "the ledger")
	name := f.String("run", "run", "which run's jobs")
	jobs := f.Int("jobs", 1, "how many there were")
	if err := f.Parse(args); err != nil {
		return err
	}
	ledger, err := os.Open(*file)
	if err != nil {
		return err
	}
	defer ledger.Close()
	verdict, err := verify.VerifyLedger(ledger, *name, *jobs)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdict); err != nil {
		return err
	}
	if !verdict.EachDoneOnce() {
		return errors.New("not each job was done once")
	}
	return nil
}

// jobBatch is the jobs that are sent.
type jobBatch struct {
	url, queue, run    string
	jobs, milliseconds int
	rate               float64
}

func parseAndSend(ctx context.Context, args []string) error {
	var b jobBatch
	f := flag.NewFlagSet("send", flag.ContinueOnError)
	f.StringVar(&b.url, "url", nats.DefaultURL, "the broker")
	f.StringVar(&b.queue, "queue", "orders", "the queue")
	f.StringVar(&b.run, "run", "run", "what the jobs' names begin with")
	f.IntVar(&b.jobs, "jobs", 1, "how many")
	f.Float64Var(&b.rate, "rate", 0, "how many a second; 0: as fast as the broker takes them")
	f.IntVar(&b.milliseconds, "milliseconds", 100, "how long each takes")
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
	begun := time.Now()
	if err := b.sendJobs(ctx, stream, begun); err != nil {
		return err
	}
	fmt.Printf("sent %d jobs in %s\n", b.jobs, time.Since(begun).Round(time.Millisecond))
	return nil
}

// sendJobs sends the batch at its rate, some jobs at a time.
func (b *jobBatch) sendJobs(ctx context.Context, stream jetstream.JetStream, begun time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxUnacknowledged)
	for number := range b.jobs {
		if b.rate > 0 {
			if err := sleepUntil(ctx, begun.Add(time.Duration(float64(number)/b.rate*float64(time.Second)))); err != nil {
				return errors.Join(err, group.Wait())
			}
		}
		name := verify.JobName(b.run, number)
		group.Go(func() error {
			payload := fmt.Sprintf(`{"id":%q,"milliseconds":%d}`, name, b.milliseconds)
			return sendJob(ctx, stream, "yardmaster."+b.queue+".ready.default", name, payload)
		})
	}
	return group.Wait()
}

// sendJob sends a job until the broker has it. Its name keeps it from being there twice, when
// only the acknowledgement was lost.
func sendJob(ctx context.Context, stream jetstream.JetStream, subject, id, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, brokerTimeout)
	defer cancel()
	for {
		err := publishOnce(ctx, stream, subject, id, payload)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(200*time.Millisecond)); err != nil {
			return err
		}
	}
}

// publishTimeout is how long one try waits for the broker's word, which may have been lost.
const publishTimeout = 2 * time.Second

func publishOnce(ctx context.Context, stream jetstream.JetStream, subject, id, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err := stream.Publish(ctx, subject, []byte(payload), jetstream.WithMsgID(id))
	return err
}

func sleepUntil(ctx context.Context, due time.Time) error {
	select {
	case <-time.After(time.Until(due)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
