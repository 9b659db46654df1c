package main

import (
	"fmt"
	"time"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/internal/kinds/workerpool/scaling"
)

// scalerModel is one of the compared scalers.
type scalerModel struct {
	name string
	run  func(w *workerSimulation, most int32) simulationResult
}

// waitObjective is the wait objective of Yardmaster: the shortest waits possible, which are also the purpose of KEDA's thresholds.
const waitObjective = 5 * time.Second

// yardmasterScaler returns Yardmaster with default settings except for the objective.
func yardmasterScaler() scalerModel {
	return scalerModel{"Yardmaster", func(w *workerSimulation, most int32) simulationResult {
		autoscaling := &v1alpha1.Autoscaling{MaxReplicas: most, WaitP95: new(v1alpha1.Duration)}
		autoscaling.WaitP95.Duration.Duration = waitObjective
		m := &yardmasterModel{workerSimulation: w, settings: scaling.NewSettings(autoscaling, workerConcurrency)}
		interval := scaling.DecisionInterval.Seconds()
		w.scheduleEvery(interval, interval*w.random.Float64(), m.scaleOnce)
		return w.runToEnd()
	}}
}

// tunedThreshold is a threshold with which workers are as busy as with Yardmaster.
const tunedThreshold = 8

// tunedKEDA returns KEDA with the settings of an expert, and without a limit of scale-ups.
func tunedKEDA(threshold, stabilization float64) scalerModel {
	return newKEDAScaler(
		fmt.Sprintf("KEDA, tuned, %g s", stabilization),
		kedaSettings{polling: 2, cooldown: stabilization, threshold: threshold, stabilization: stabilization, unlimitedScaleUp: true},
	)
}

func newKEDAScaler(name string, settings kedaSettings) scalerModel {
	return scalerModel{name, func(w *workerSimulation, most int32) simulationResult {
		k := &kedaModel{workerSimulation: w, kedaSettings: settings, maxReplicas: int(most)}
		w.scheduleEvery(k.polling, k.polling*w.random.Float64(), k.pollQueue)
		w.scheduleEvery(autoscalerSyncPeriod, autoscalerSyncPeriod*w.random.Float64(), k.syncAutoscaler)
		return w.runToEnd()
	}}
}

// sweptScalers returns Yardmaster and KEDA with many settings.
func sweptScalers() []scalerModel {
	all := []scalerModel{yardmasterScaler()}
	for _, threshold := range []float64{6, 7, tunedThreshold, 9, 10, 12, 15, 20, 30} {
		for _, stabilization := range []float64{15, 30, 60} {
			all = append(all, tunedKEDA(threshold, stabilization))
			all[len(all)-1].name += fmt.Sprintf(", %g messages", threshold)
		}
	}
	return all
}

// comparedScalers returns the rows of the table.
func comparedScalers() []scalerModel {
	byDefault := newKEDAScaler("KEDA, defaults", kedaSettings{polling: 30, cooldown: 300, threshold: 10, stabilization: 300})
	return []scalerModel{yardmasterScaler(), byDefault, tunedKEDA(tunedThreshold, 60), tunedKEDA(tunedThreshold, 30)}
}
