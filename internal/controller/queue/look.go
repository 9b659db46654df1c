package queue

import (
	"context"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/brokerconn"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// patience is how long a broker may take for one request, or for several that go together.
const patience = 10 * time.Second

// fresh is how old figures may be that another controller has had read.
const fresh = time.Second

// ensured is what a queue was last compared with, and where.
type ensured struct {
	line    brokerconn.BrokerKey
	wanted  broker.QueueConfig
	again   time.Time
	outcome broker.EnsureResult
}

// due tells whether the queue is to be compared again. A connection that was made anew is
// no reason: if the broker has forgotten the queue, its figures are missing.
func (e *ensured) due(line brokerconn.BrokerKey, wanted *broker.QueueConfig) bool {
	return e.line != line || !reflect.DeepEqual(&e.wanted, wanted) || !time.Now().Before(e.again) || len(e.outcome.RetiringPriorities) > 0
}

// spread is a time about as long as the one given, so that what began together does not
// go on together.
func spread(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2) //nolint:gosec // to spread, not to hide
}

// still is what the last comparison says of the queue later on: what was done is done.
func (e *ensured) still() *broker.EnsureResult {
	outcome := e.outcome
	if outcome.Corrected {
		outcome.Drift = nil
	}
	outcome.Created, outcome.Updated, outcome.Corrected = false, false, false
	return &outcome
}

// look makes the queue what it is to be, if that is due, and reads its figures.
func (p *pass) look(ctx context.Context, engine broker.Engine) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wanted := queue.DesiredQueue(p.q, &p.seen.Effective)
	last := &p.state.ensured
	figures, err := p.line.Stats(ctx, wanted.Name, fresh)
	missing := broker.ClassOf(err) == broker.ClassNotFound
	if err != nil && !missing {
		return err
	}
	// Dead letters are only touched once it is sure again whose they are.
	if missing || last.due(p.line.Key, &wanted) || queue.DeadLetterRequest(p.q) != "" {
		if err := p.ensure(ctx, engine, &wanted); err != nil {
			return err
		}
		if figures, err = p.line.Stats(ctx, wanted.Name, 0); err != nil {
			return err
		}
	}
	if p.seen.Outcome == nil {
		p.seen.Outcome = last.still()
	}
	p.seen.Figures = &figures
	return nil
}

// ensure makes the queue what it is to be, and dead letters of what the broker has given
// up on by itself.
func (p *pass) ensure(ctx context.Context, engine broker.Engine, wanted *broker.QueueConfig) error {
	outcome, err := engine.EnsureQueue(ctx, *wanted)
	if err != nil {
		return err
	}
	p.seen.Outcome = &outcome
	p.state.ensured = ensured{line: p.line.Key, wanted: *wanted, again: time.Now().Add(spread(p.options.Sweep)), outcome: outcome}
	if outcome.Corrected {
		corrections.Inc()
	}
	rescued, err := engine.Rescue(ctx, wanted.Name)
	rescues.Add(float64(rescued))
	return err
}
