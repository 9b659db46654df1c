package scaling

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of autoscaling: those that the API server sets, and those that it does not.
const (
	defaultWaitP95     = 30 * time.Second
	defaultUtilization = 80
	defaultIdleAfter   = time.Minute
	defaultFallback    = time.Minute
)

// defaultScaleDown removes up to 60 % of the workers every 30 seconds: 20 % per 10 s, in few
// changes.
var defaultScaleDown = ScaleRule{Window: 15 * time.Second, Step: ScaleStep{Percent: 60}, Period: 30 * time.Second}

// defaultPeriod is the period of a rule that sets only a step.
const defaultPeriod = 10 * time.Second

// NewSettings returns the settings of a pool's autoscaling. The caller sets the budget and the
// limits of the queues.
func NewSettings(a *v1alpha1.Autoscaling, concurrency int32) Settings {
	p := Settings{
		MinReplicas: a.MinReplicas, MaxReplicas: a.MaxReplicas,
		Concurrency: concurrency,
		WaitP95:     defaultWaitP95,
		Utilization: float64(defaultUtilization) / 100,
		IdleAfter:   durationOr(a.IdleAfter, defaultIdleAfter),
		ScaleUp:     newScaleRule(a.ScaleUp, ScaleRule{}),
		ScaleDown:   newScaleRule(a.ScaleDown, defaultScaleDown),
		DryRun:      a.DryRun,
	}
	if a.SLO != nil {
		p.WaitP95 = durationOr(a.SLO.WaitP95, defaultWaitP95)
	}
	if a.TargetUtilizationPercent > 0 {
		p.Utilization = float64(a.TargetUtilizationPercent) / 100
	}
	if a.BacklogPerReplica != nil {
		p.BacklogPerReplica = *a.BacklogPerReplica
	}
	if a.Fallback != nil {
		p.Fallback = &Fallback{Replicas: a.Fallback.Replicas, After: durationOr(a.Fallback.After, defaultFallback)}
	}
	if a.PausedUntil != nil {
		p.PausedUntil = a.PausedUntil.Time
	}
	return p
}

// newScaleRule returns a rule, with omitted fields taken from the default. A step without a period
// gets the default period.
func newScaleRule(given *v1alpha1.ScaleRule, def ScaleRule) ScaleRule {
	if given == nil {
		return def
	}
	rule := ScaleRule{Window: durationOr(given.Window, def.Window), Step: def.Step, Period: durationOr(given.Period, def.Period)}
	if given.MaxStep != nil {
		rule.Step = newScaleStep(given.MaxStep)
		if given.Period == nil {
			rule.Period = defaultPeriod
		}
	}
	if rule.Step != (ScaleStep{}) && rule.Period == 0 {
		rule.Period = defaultPeriod
	}
	return rule
}

// newScaleStep parses a number or a percentage. Any other value, which the API server should have
// refused, means unlimited.
func newScaleStep(step *intstr.IntOrString) ScaleStep {
	if step.Type == intstr.Int {
		return ScaleStep{Count: max(step.IntVal, 0)}
	}
	percent, err := strconv.ParseInt(strings.TrimSuffix(step.StrVal, "%"), 10, 32)
	if err != nil || percent < 0 {
		return ScaleStep{}
	}
	return ScaleStep{Percent: int32(percent)}
}

func durationOr(given *v1alpha1.Duration, def time.Duration) time.Duration {
	if given == nil {
		return def
	}
	return given.Duration.Duration
}
