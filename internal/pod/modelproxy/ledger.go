package modelproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

const microsPerDollar = 1e6

// ErrBudget means that the attempt has spent its budget.
var ErrBudget = errors.New("the budget is spent")

// Report is what the operator learns from the container: the message with which it ended.
type Report struct {
	// SpentUSD is what the attempt cost at most: open requests count with their upper bounds.
	SpentUSD string `json:"spentUSD"`
	// Incomplete means that responses without a price were not counted. It is never true in an attempt with a budget.
	Incomplete bool `json:"incomplete,omitempty"`
	// Refused is how many requests the budget refused.
	Refused int64 `json:"refused,omitempty"`
}

// ParseReport parses the message of an ended container.
func ParseReport(message string) (*Report, error) {
	report := &Report{}
	if err := json.Unmarshal([]byte(strings.TrimSpace(message)), report); err != nil {
		return nil, err
	}
	if cost, err := strconv.ParseFloat(report.SpentUSD, 64); err != nil || !(cost >= 0 && cost < 1e9) {
		return nil, fmt.Errorf("spentUSD is %q", report.SpentUSD)
	}
	return report, nil
}

// state is what a restart of the container must not forget.
type state struct {
	// Spent is the cost of the requests that ended, and Open the sum of the upper bounds of the others, in millionths of a dollar.
	Spent, Open int64
	// Unpriced is how many open requests have no price.
	Unpriced, Refused   int64
	Incomplete, Limited bool
}

// ledger admits requests within a budget. What may be spent is stored before a request is sent, so no restart forgets it.
type ledger struct {
	// limit in millionths of a dollar, if limited.
	limit int64
	// store stores a state. A request whose upper bound cannot be stored is refused.
	store func(state) error

	mutex   sync.Mutex
	changed chan struct{}
	state   state
	open    int
	// alone means that the open request has no upper bound that others could fit beside.
	alone bool
}

// newLedger continues with the state of the container before its restart. Its open requests cost their upper bounds.
func newLedger(limit int64, before state, store func(state) error) (*ledger, error) {
	before.Spent, before.Open = before.Spent+before.Open, 0
	before.Incomplete, before.Unpriced = before.Incomplete || before.Unpriced > 0, 0
	l := &ledger{limit: limit, store: store, state: before, changed: make(chan struct{})}
	return l, store(before)
}

// bound is what a request costs at most, unless it is unpriced. With alone, other requests must not run beside it.
type bound struct {
	micros int64
	alone  bool
	// unpriced is 1 for a request without a price, else 0.
	unpriced int64
}

// admit waits until a request fits into the budget: beside all open requests, or alone. So at most one response exceeds the budget.
func (l *ledger) admit(ctx context.Context, b bound) error {
	for {
		l.mutex.Lock()
		fits := l.state.Spent+l.state.Open+b.micros <= l.limit && !b.alone && !l.alone
		switch {
		case l.state.Limited && l.state.Spent >= l.limit:
			l.state.Refused++
			err := l.store(l.state)
			l.mutex.Unlock()
			return errors.Join(ErrBudget, err)
		case !l.state.Limited || fits || l.open == 0:
			next := l.state
			next.Open += b.micros
			next.Unpriced += b.unpriced
			err := l.store(next)
			if err == nil {
				l.state, l.alone = next, b.alone
				l.open++
			}
			l.mutex.Unlock()
			return err
		}
		changed := l.changed
		l.mutex.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// settle records what an admitted request cost. If that cannot be stored, the stored upper bound remains.
func (l *ledger) settle(b bound, micros int64, incomplete bool) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.state.Open -= b.micros
	l.state.Unpriced -= b.unpriced
	l.state.Spent += micros
	l.state.Incomplete = l.state.Incomplete || incomplete
	l.open--
	l.alone = false
	close(l.changed)
	l.changed = make(chan struct{})
	return l.store(l.state)
}

// describe says why a request is refused.
func (l *ledger) describe() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return fmt.Sprintf("the session spent %s of the %s US dollars that maxCostUSD left for this attempt; increase maxCostUSD and run it again",
		dollars(l.state.Spent), dollars(l.limit))
}

func dollars(micros int64) string {
	text := fmt.Sprintf("%d.%06d", micros/microsPerDollar, micros%microsPerDollar)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// report returns the report of a state.
func (s *state) report() *Report {
	return &Report{SpentUSD: dollars(s.Spent + s.Open), Incomplete: s.Incomplete || s.Unpriced > 0, Refused: s.Refused}
}

func (l *ledger) isLimited() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.state.Limited
}
