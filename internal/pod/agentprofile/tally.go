package agentprofile

import "math"

// Sums are the tokens and the cost of a conversation.
type Sums struct {
	Usage   Usage    `json:"usage"`
	CostUSD *float64 `json:"costUSD,omitempty"`
}

// Tally adds up the events of an agent.
type Tally struct {
	profile *Profile
	model   string
	// baseline returns the sums of earlier processes in a conversation; nil if unknown.
	baseline func(conversation string) *Sums

	report  Report
	deltas  Sums
	totals  *Sums
	invalid bool
}

// Report is the result of a process of an agent.
type Report struct {
	Conversation, Model string
	// Finished means that the agent reported the end of its work, and Failed that it failed. Answer is its answer, or the reason of
	// the failure.
	Finished, Failed bool
	Answer           string
	ToolCalls        int
	// Interrupted means that answers of the model were cut off, so that tokens and cost are not exact.
	Interrupted bool
	// Usage is nil if no tokens were reported. It is a lower bound unless it is complete.
	Usage         *Usage
	UsageComplete bool
	// CostUSD is nil if unknown. It is a lower bound unless the agent finished and was not interrupted.
	CostUSD *float64
	// Sums of the conversation, for later processes; nil if unknown.
	Sums *Sums
}

// NewTally returns the tally of a process that was started with this model. If resumed, the process continues a conversation.
func (p *Profile) NewTally(model string, resumed bool, baseline func(conversation string) *Sums) *Tally {
	t := &Tally{profile: p, model: model, baseline: baseline}
	if !resumed || p.Totals != TotalsOfConversation {
		t.baseline = func(string) *Sums { return &Sums{CostUSD: new(float64)} }
	}
	return t
}

// Add adds an event.
func (t *Tally) Add(e *Event) {
	if e.Conversation != "" {
		t.report.Conversation = e.Conversation
	}
	if e.Model != "" && e.Type == EventStarted {
		t.model = e.Model
	}
	t.report.Interrupted = t.report.Interrupted || e.Interrupted
	switch e.Type {
	case EventToolCall:
		t.report.ToolCalls++
	case EventText:
		if !t.report.Finished {
			t.report.Answer = e.Text
		}
	case EventUsage:
		t.addUsage(e)
	case EventResult:
		t.report.Finished, t.report.Failed = true, e.Failed
		if e.Text != "" {
			t.report.Answer = e.Text
		}
	}
}

func (t *Tally) addUsage(e *Event) {
	if e.Usage != nil && !e.Usage.isValid() || e.CostUSD != nil && (math.IsNaN(*e.CostUSD) || math.IsInf(*e.CostUSD, 0) || *e.CostUSD < 0) {
		t.invalid = true
		return
	}
	if e.Total {
		t.totals = &Sums{CostUSD: e.CostUSD}
		if e.Usage != nil {
			t.totals.Usage = *e.Usage
		}
		return
	}
	if e.Usage != nil {
		t.deltas.Usage = t.deltas.Usage.Add(*e.Usage)
	}
	if e.CostUSD != nil {
		if t.deltas.CostUSD == nil {
			t.deltas.CostUSD = new(float64)
		}
		*t.deltas.CostUSD += *e.CostUSD
	}
}

// Report returns the report of the events so far.
func (t *Tally) Report() Report {
	r := t.report
	r.Model = t.model
	agentCost := t.deltas.CostUSD
	switch {
	case t.totals != nil:
		r.Sums = t.totals
		base := t.baseline(r.Conversation)
		if base == nil {
			break // the usage of earlier processes is unknown
		}
		r.Usage, r.UsageComplete = new(t.totals.Usage.minus(base.Usage)), r.Finished
		if agentCost = nil; t.totals.CostUSD != nil && base.CostUSD != nil {
			agentCost = new(max(0, *t.totals.CostUSD-*base.CostUSD))
		}
	case t.deltas != Sums{}:
		r.Usage = new(t.deltas.Usage)
		r.UsageComplete = r.Finished && t.profile.Totals == TotalsOfProcess
	}
	r.UsageComplete = r.UsageComplete && !t.invalid && !r.Interrupted
	r.CostUSD = t.cost(&r, agentCost)
	return r
}

// cost returns the cost by configured prices, or else the agent's cost.
func (t *Tally) cost(r *Report, agentCost *float64) *float64 {
	if t.invalid {
		return nil
	}
	if price, found := t.profile.Prices[t.model]; found {
		if r.Usage == nil {
			return nil
		}
		return new(price.cost(*r.Usage))
	}
	if agentCost != nil && *agentCost == 0 && t.profile.ZeroCostIsUnknown && r.Usage != nil && *r.Usage != (Usage{}) {
		return nil
	}
	return agentCost
}
