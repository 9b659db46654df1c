package main

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/scaling"
)

// scalerModel is a scaler in the comparison.
type scalerModel struct {
	name string
	run  func(y *workerSimulation, most int32) simulationResult
}

// waitObjective is Yardmaster's SLO. It is short, because KEDA's thresholds also aim at short waits.
const waitObjective = 5 * time.Second

// yardmasterScaler returns Yardmaster with default settings except the SLO.
func yardmasterScaler() scalerModel {
	return scalerModel{"Yardmaster", func(y *workerSimulation, most int32) simulationResult {
		autoscaling := &v1alpha1.Autoscaling{MaxReplicas: most, SLO: &v1alpha1.WaitObjective{WaitP95: new(v1alpha1.Duration)}}
		autoscaling.SLO.WaitP95.Duration.Duration = waitObjective
		return simulateYardmaster(y, scaling.NewSettings(autoscaling, workerConcurrency))
	}}
}

// defaultKEDA returns KEDA and the autoscaler with default settings.
func defaultKEDA() scalerModel {
	return newKEDAScaler("KEDA, defaults", kedaSettings{polling: 30, cooldown: 300, threshold: 10, stabilization: 300})
}

// tunedThreshold is the threshold with which KEDA's workers have the same utilization as Yardmaster's.
const tunedThreshold = 8

// tunedKEDA returns KEDA with the settings of an expert, and without a limit for scaling up.
func tunedKEDA(threshold, stabilization float64) scalerModel {
	return newKEDAScaler(
		fmt.Sprintf("KEDA, tuned, %g s", stabilization),
		kedaSettings{polling: 2, cooldown: stabilization, threshold: threshold, stabilization: stabilization, unlimitedScaleUp: true},
	)
}

func newKEDAScaler(name string, settings kedaSettings) scalerModel {
	return scalerModel{name, func(y *workerSimulation, most int32) simulationResult { return simulateKEDA(y, most, settings) }}
}

// comparedScalers returns the scalers in the order of the table, Yardmaster first.
func comparedScalers() []scalerModel {
	return []scalerModel{yardmasterScaler(), defaultKEDA(), tunedKEDA(tunedThreshold, 60), tunedKEDA(tunedThreshold, 30)}
}
