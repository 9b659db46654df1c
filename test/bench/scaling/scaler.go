package main

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// scaler is one of those that are compared.
type scaler struct {
	name string
	run  func(y *yard, most int32) result
}

// objective that ours is given: that messages wait as short as may be, which is what the
// thresholds that KEDA is given are for.
const objective = 5 * time.Second

// ours has all its defaults but the objective.
func ours() scaler {
	return scaler{"Yardmaster", func(y *yard, most int32) result {
		autoscaling := &v1alpha1.Autoscaling{MaxReplicas: most, SLO: &v1alpha1.WaitObjective{WaitP95: new(v1alpha1.Duration)}}
		autoscaling.SLO.WaitP95.Duration.Duration = objective
		return runYardmaster(y, scaling.NewSettings(autoscaling, concurrency))
	}}
}

// byDefault is what KEDA and the autoscaler do when nothing is set but the trigger.
func byDefault() scaler {
	return newKEDA("KEDA, defaults", kedaSettings{polling: 30, cooldown: 300, threshold: 10, stabilization: 300})
}

// wellChosen is a threshold that fills as much of the workers' time as ours does.
const wellChosen = 8

// tuned is what somebody sets who knows them well. It may also grow as fast as it wants.
func tuned(threshold, stabilization float64) scaler {
	return newKEDA(
		fmt.Sprintf("KEDA, tuned, %g s", stabilization),
		kedaSettings{polling: 2, cooldown: stabilization, threshold: threshold, stabilization: stabilization, freely: true},
	)
}

func newKEDA(name string, settings kedaSettings) scaler {
	return scaler{name, func(y *yard, most int32) result { return runKEDA(y, most, settings) }}
}

// compared are the rows of the table.
func compared() []scaler {
	return []scaler{ours(), byDefault(), tuned(wellChosen, 60), tuned(wellChosen, 30)}
}
