package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScaleMemory is what the next decision about the number of workers must know of those
// before. It is for the operator, which goes on with it after a crash.
type ScaleMemory struct {
	// measuredTime is when the figures were read.
	// +optional
	MeasuredTime *metav1.Time `json:"measuredTime,omitempty"`
	// arrived messages since ever, by then.
	// +optional
	Arrived *int64 `json:"arrived,omitempty"`
	// finished messages since ever, by then.
	// +optional
	Finished *int64 `json:"finished,omitempty"`
	// held messages, waiting and in flight.
	// +optional
	Outstanding int64 `json:"outstanding,omitempty"`

	// arrivalRate in messages a second, smoothed over 10 s.
	// +optional
	ArrivalRate *resource.Quantity `json:"arrivalRate,omitempty"`
	// earlierRate is the same, smoothed over 40 s.
	// +optional
	TrendRate *resource.Quantity `json:"trendRate,omitempty"`
	// finishRate in messages a second, smoothed over 10 s.
	// +optional
	FinishRate *resource.Quantity `json:"finishRate,omitempty"`
	// worked is how many seconds messages were in flight lately, all together.
	// +optional
	BusySeconds *resource.Quantity `json:"busySeconds,omitempty"`
	// ended is how many were finished in that time.
	// +optional
	BusyFinished *resource.Quantity `json:"busyFinished,omitempty"`
	// serviceSeconds of a message, as the workers say it.
	// +optional
	ServiceSeconds *resource.Quantity `json:"serviceSeconds,omitempty"`

	// wants of the last decisions, the oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Recommendations []RecommendationSpan `json:"recommendations,omitempty"`
	// grown is growth that may not be over.
	// +optional
	ScaleUp *ScaleRamp `json:"scaleUp,omitempty"`
	// shrunk is shrinking that may not be over.
	// +optional
	ScaleDown *ScaleRamp `json:"scaleDown,omitempty"`
	// idleTime is since when there is nothing to do.
	// +optional
	IdleTime *metav1.Time `json:"idleTime,omitempty"`
	// missingTime is since when there are no figures.
	// +optional
	MissingTime *metav1.Time `json:"missingTime,omitempty"`
	// saturation is what is known of what the workers can finish.
	// +optional
	Saturation *SaturationMemory `json:"saturation,omitempty"`
}

// RecommendationSpan is what was wanted in a part of a window.
type RecommendationSpan struct {
	// time it began.
	Time metav1.Time `json:"time"`
	// least that was wanted.
	Min int32 `json:"min"`
	// most that was wanted.
	Max int32 `json:"max"`
}

// ScaleRamp is growth or shrinking that takes more than one decision.
type ScaleRamp struct {
	// from is how many workers there were when it began.
	From int32 `json:"from"`
	// time of the last change.
	Time metav1.Time `json:"time"`
}

// SaturationMemory is what is known of what the workers can finish.
type SaturationMemory struct {
	// ready workers are there since time.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// time since when.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// wokenTime is since when there are any.
	// +optional
	ActiveSince *metav1.Time `json:"activeSince,omitempty"`
	// knownReady workers finished knownRate messages a second before the pool grew.
	// +optional
	BaselineReady int32 `json:"baselineReady,omitempty"`
	// knownRate they finished.
	// +optional
	BaselineRate *resource.Quantity `json:"baselineRate,omitempty"`
	// frozenRate is what was finished in a second when growth was found to be of no use; 0
	// if it was not.
	// +optional
	SaturatedRate *resource.Quantity `json:"saturatedRate,omitempty"`
}
