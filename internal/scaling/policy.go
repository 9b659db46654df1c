package scaling

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of an Autoscaling whose fields are left out, as the API server fills them in,
// and those it cannot fill in.
const (
	defaultWaitP95     = 30 * time.Second
	defaultUtilization = 80
	defaultIdleAfter   = time.Minute
	defaultFallback    = time.Minute
)

// defaultDown gives up to 60 % of the workers back every 30 seconds: 20 % in 10 s, in few
// changes.
var defaultDown = Rule{Window: 15 * time.Second, Step: Step{Percent: 60}, Period: 30 * time.Second}

// defaultPeriod of a rule that has a step.
const defaultPeriod = 10 * time.Second

// NewPolicy is the policy of a pool's autoscaling. What comes from elsewhere, the budget
// and the queues' limits, is for the caller to set.
func NewPolicy(a *v1alpha1.Autoscaling, concurrency int32) Policy {
	p := Policy{
		Min: a.MinReplicas, Max: a.MaxReplicas,
		Concurrency: concurrency,
		WaitP95:     defaultWaitP95,
		Utilization: float64(defaultUtilization) / 100,
		IdleAfter:   duration(a.IdleAfter, defaultIdleAfter),
		Up:          newRule(a.ScaleUp, Rule{}),
		Down:        newRule(a.ScaleDown, defaultDown),
		DryRun:      a.DryRun,
	}
	if a.SLO != nil {
		p.WaitP95 = duration(a.SLO.WaitP95, defaultWaitP95)
	}
	if a.TargetUtilizationPercent > 0 {
		p.Utilization = float64(a.TargetUtilizationPercent) / 100
	}
	if a.BacklogPerReplica != nil {
		p.BacklogPerReplica = *a.BacklogPerReplica
	}
	if a.Fallback != nil {
		p.Fallback = &Fallback{Replicas: a.Fallback.Replicas, After: duration(a.Fallback.After, defaultFallback)}
	}
	if a.PausedUntil != nil {
		p.PausedUntil = a.PausedUntil.Time
	}
	return p
}

// newRule is a rule with what is left out taken from the default. Who gives a step but no
// period means one of the usual length.
func newRule(given *v1alpha1.ScaleRule, def Rule) Rule {
	if given == nil {
		return def
	}
	rule := Rule{Window: duration(given.Window, def.Window), Step: def.Step, Period: duration(given.Period, def.Period)}
	if given.MaxStep != nil {
		rule.Step = newStep(given.MaxStep)
		if given.Period == nil {
			rule.Period = defaultPeriod
		}
	}
	if rule.Step != (Step{}) && rule.Period == 0 {
		rule.Period = defaultPeriod
	}
	return rule
}

// newStep reads a number or a percentage. One that is neither limits nothing: the API
// server takes none.
func newStep(step *intstr.IntOrString) Step {
	if step.Type == intstr.Int {
		return Step{Count: max(step.IntVal, 0)}
	}
	percent, err := strconv.ParseInt(strings.TrimSuffix(step.StrVal, "%"), 10, 32)
	if err != nil || percent < 0 {
		return Step{}
	}
	return Step{Percent: int32(percent)}
}

func duration(given *v1alpha1.Duration, def time.Duration) time.Duration {
	if given == nil {
		return def
	}
	return given.Duration.Duration
}
