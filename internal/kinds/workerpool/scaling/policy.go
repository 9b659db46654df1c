package scaling

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

// Defaults of autoscaling, whether the API server sets them or not.
const (
	defaultWaitP95     = 30 * time.Second
	defaultUtilization = 80
	defaultIdleAfter   = time.Minute
	defaultFallback    = time.Minute
)

// defaultScaleDown removes up to 60 % of the workers every 30 s: 20 % per 10 s, in few changes.
var defaultScaleDown = ScaleRule{Window: 15 * time.Second, Step: new(intstr.FromString("60%")), Period: 30 * time.Second}

// defaultPeriod is the period of a rule that sets only a step.
const defaultPeriod = 10 * time.Second

// NewSettings returns the settings of a pool's autoscaling. The caller sets the budget and the
// limits of the queues.
func NewSettings(a *v1alpha1.Autoscaling, concurrency int32) Settings {
	p := Settings{
		MinReplicas: a.MinReplicas, MaxReplicas: a.MaxReplicas,
		Concurrency:       concurrency,
		WaitP95:           durationOr(ptr.Deref(a.SLO, v1alpha1.WaitObjective{}).WaitP95, defaultWaitP95),
		BacklogPerReplica: ptr.Deref(a.BacklogPerReplica, 0),
		Utilization:       float64(cmp.Or(a.TargetUtilizationPercent, defaultUtilization)) / 100,
		IdleAfter:         durationOr(a.IdleAfter, defaultIdleAfter),
		ScaleUp:           newScaleRule(a.ScaleUp, ScaleRule{}),
		ScaleDown:         newScaleRule(a.ScaleDown, defaultScaleDown),
		PausedUntil:       timeOf(a.PausedUntil),
		DryRun:            a.DryRun,
	}
	if a.Fallback != nil {
		p.Fallback = &Fallback{Replicas: a.Fallback.Replicas, After: durationOr(a.Fallback.After, defaultFallback)}
	}
	return p
}

// newScaleRule returns a rule, with omitted fields from def. A step without a period gets defaultPeriod.
func newScaleRule(given *v1alpha1.ScaleRule, def ScaleRule) ScaleRule {
	if given == nil {
		return def
	}
	rule := ScaleRule{Window: durationOr(given.Window, def.Window), Step: def.Step, Period: durationOr(given.Period, def.Period)}
	if given.MaxStep != nil {
		rule.Step = given.MaxStep
		if given.Period == nil {
			rule.Period = defaultPeriod
		}
	}
	if rule.Step != nil && rule.Period == 0 {
		rule.Period = defaultPeriod
	}
	return rule
}

func durationOr(given *v1alpha1.Duration, def time.Duration) time.Duration {
	if given == nil {
		return def
	}
	return given.Duration.Duration
}
