package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ScaleMemory is the state of the autoscaler. The operator restores it after a restart. Rates are
// in messages per second.
type ScaleMemory struct {
	// measuredTime is when the queue metrics were read.
	// +optional
	MeasuredTime *metav1.Time `json:"measuredTime,omitempty"`
	// arrived is the cumulative number of messages received as of measuredTime.
	// +optional
	Arrived *int64 `json:"arrived,omitempty"`
	// finished is the cumulative number of messages finished as of measuredTime.
	// +optional
	Finished *int64 `json:"finished,omitempty"`
	// outstanding is the number of messages waiting or being handled as of measuredTime.
	// +optional
	Outstanding int64 `json:"outstanding,omitempty"`

	// arrivalRate is the arrival rate, smoothed over 10 s.
	// +optional
	ArrivalRate *resource.Quantity `json:"arrivalRate,omitempty"`
	// trendRate is the arrival rate, smoothed over 40 s. An arrivalRate above it means that
	// arrivals increase.
	// +optional
	TrendRate *resource.Quantity `json:"trendRate,omitempty"`
	// finishRate is the rate at which messages are finished, smoothed over 10 s.
	// +optional
	FinishRate *resource.Quantity `json:"finishRate,omitempty"`
	// busySeconds is the total time that handlers ran in the last minutes, in seconds.
	// +optional
	BusySeconds *resource.Quantity `json:"busySeconds,omitempty"`
	// busyFinished is the number of messages finished in the same time.
	// +optional
	BusyFinished *resource.Quantity `json:"busyFinished,omitempty"`
	// serviceSeconds is the time of one attempt at a message that workers report, in seconds.
	// +optional
	ServiceSeconds *resource.Quantity `json:"serviceSeconds,omitempty"`

	// recommendations of recent decisions, oldest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Recommendations []RecommendationSpan `json:"recommendations,omitempty"`
	// scaleUp is a scale-up in progress.
	// +optional
	ScaleUp *ScaleRamp `json:"scaleUp,omitempty"`
	// scaleDown is a scale-down in progress.
	// +optional
	ScaleDown *ScaleRamp `json:"scaleDown,omitempty"`
	// idleTime is since when the pool has no messages.
	// +optional
	IdleTime *metav1.Time `json:"idleTime,omitempty"`
	// missingTime is since when queue metrics are unavailable.
	// +optional
	MissingTime *metav1.Time `json:"missingTime,omitempty"`
	// saturation is the state of the detection of saturated throughput.
	// +optional
	Saturation *SaturationMemory `json:"saturation,omitempty"`
}

// RecommendationSpan is the range of recommendations in a part of a window.
type RecommendationSpan struct {
	// time is the start of the span.
	Time metav1.Time `json:"time"`
	// min is the lowest recommendation of the span.
	Min int32 `json:"min"`
	// max is the highest recommendation of the span.
	Max int32 `json:"max"`
}

// ScaleRamp is a change of the number of workers that takes more than one decision.
type ScaleRamp struct {
	// from is the number of workers at the start of the change.
	From int32 `json:"from"`
	// periodFrom is the number of workers at the start of the last period.
	// +optional
	PeriodFrom *int32 `json:"periodFrom,omitempty"`
	// time of the first change in the last period.
	Time metav1.Time `json:"time"`
}

// SaturationMemory is the state of the detection of saturated throughput. Rates are in messages
// per second.
type SaturationMemory struct {
	// ready is the number of ready workers since time.
	// +optional
	Ready int32 `json:"ready,omitempty"`
	// time of the last change of ready.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
	// activeSince is when the pool last scaled from zero.
	// +optional
	ActiveSince *metav1.Time `json:"activeSince,omitempty"`
	// baselineReady is the number of ready workers before the last scale-up.
	// +optional
	BaselineReady int32 `json:"baselineReady,omitempty"`
	// baselineRate is the rate at which they finished messages.
	// +optional
	BaselineRate *resource.Quantity `json:"baselineRate,omitempty"`
	// saturatedRate is the rate at which more workers stopped to increase throughput; 0 if
	// throughput is not saturated.
	// +optional
	SaturatedRate *resource.Quantity `json:"saturatedRate,omitempty"`
}
