package main

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// scalerModel is one of those that are compared.
type scalerModel struct {
	name string
	run  func(y *workerSimulation, most int32) simulationResult
}

// waitObjective that ours is given: that messages wait as short as may be, which is what the
// thresholds that KEDA is given are for.
const waitObjective = 5 * time.Second

// yardmasterScaler has all its defaults but the objective.
func yardmasterScaler() scalerModel {
	return scalerModel{"Yardmaster", func(y *workerSimulation, most int32) simulationResult {
		autoscaling := &v1alpha1.Autoscaling{MaxReplicas: most, SLO: &v1alpha1.WaitObjective{WaitP95: new(v1alpha1.Duration)}}
		autoscaling.SLO.WaitP95.Duration.Duration = waitObjective
		return simulateYardmaster(y, scaling.NewSettings(autoscaling, workerConcurrency))
	}}
}

// defaultKEDA is what KEDA and the autoscaler do when nothing is set but the trigger.
func defaultKEDA() scalerModel {
	return newKEDAScaler("KEDA, defaults", kedaSettings{polling: 30, cooldown: 300, threshold: 10, stabilization: 300})
}

// tunedThreshold is a threshold that fills as much of the workers' time as ours does.
const tunedThreshold = 8

// tunedKEDA is what somebody sets who knows them well. It may also grow as fast as it wants.
func tunedKEDA(threshold, stabilization float64) scalerModel {
	return newKEDAScaler(
		fmt.Sprintf("KEDA, tuned, %g s", stabilization),
		kedaSettings{polling: 2, cooldown: stabilization, threshold: threshold, stabilization: stabilization, unlimitedScaleUp: true},
	)
}

func newKEDAScaler(name string, settings kedaSettings) scalerModel {
	return scalerModel{name, func(y *workerSimulation, most int32) simulationResult { return simulateKEDA(y, most, settings) }}
}

// comparedScalers are the rows of the table.
func comparedScalers() []scalerModel {
	return []scalerModel{yardmasterScaler(), defaultKEDA(), tunedKEDA(tunedThreshold, 60), tunedKEDA(tunedThreshold, 30)}
}
