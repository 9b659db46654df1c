package queue

import (
	"context"
	"reflect"
	"time"

	"github.com/yardmaster/yardmaster/internal/broker"
	"github.com/yardmaster/yardmaster/internal/queue"
)

// patience is how long a broker may take for one request, or for several that go together.
const patience = 10 * time.Second

// fresh is how old figures may be that another controller has had read.
const fresh = time.Second

// ensured is when a queue was last compared with its spec, and with which.
type ensured struct {
	engine  broker.Engine
	wanted  broker.Queue
	at      time.Time
	outcome broker.Outcome
}

// due tells whether the queue is to be compared again.
func (e *ensured) due(engine broker.Engine, wanted *broker.Queue, sweep time.Duration) bool {
	return e.engine != engine || !reflect.DeepEqual(&e.wanted, wanted) || time.Since(e.at) >= sweep || len(e.outcome.Retiring) > 0
}

// still is what the last comparison says of the queue later on: what was done is done.
func (e *ensured) still() *broker.Outcome {
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
	wanted := queue.Wanted(p.q, &p.seen.Effective)
	last := &p.state.ensured
	figures, err := p.line.Figures(ctx, wanted.Name, fresh)
	missing := broker.ClassOf(err) == broker.Missing
	if err != nil && !missing {
		return err
	}
	if missing || last.due(engine, &wanted, p.options.Sweep) {
		if err := p.ensure(ctx, engine, &wanted); err != nil {
			return err
		}
		if figures, err = p.line.Figures(ctx, wanted.Name, 0); err != nil {
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
func (p *pass) ensure(ctx context.Context, engine broker.Engine, wanted *broker.Queue) error {
	outcome, err := engine.Ensure(ctx, *wanted)
	if err != nil {
		return err
	}
	p.seen.Outcome = &outcome
	p.state.ensured = ensured{engine: engine, wanted: *wanted, at: time.Now(), outcome: outcome}
	if outcome.Corrected {
		corrections.Inc()
	}
	rescued, err := engine.Rescue(ctx, wanted.Name)
	rescues.Add(float64(rescued))
	return err
}
