package jobreport

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Threshold is the age from which a rule reports a Job. A duration of 0 means never.
type Threshold struct {
	// Suspicious is the age from which the Job is Suspicious.
	Suspicious time.Duration
	// Zombie is the age from which the Job is a Zombie. It has precedence over Suspicious.
	Zombie time.Duration
}

// Thresholds has the thresholds of each rule that depends on age, by the rule's first reason. A missing rule never matches.
type Thresholds map[Reason]*Threshold

// DefaultThresholds returns the defaults, which the caller may change.
func DefaultThresholds() Thresholds {
	thresholds := Thresholds{}
	for i := range rules {
		if rules[i].flag != "" {
			thresholds[rules[i].key()] = new(rules[i].defaults)
		}
	}
	return thresholds
}

// ThresholdSetting is one duration in Thresholds, for a flag.
type ThresholdSetting struct {
	// Name of the flag, such as never-started-zombie-after.
	Name string
	// Usage is the help text of the flag.
	Usage string
	// Value points into the Thresholds.
	Value *time.Duration
}

// Settings returns the durations that can be set, in the order of the rules.
func (t Thresholds) Settings() []ThresholdSetting {
	var settings []ThresholdSetting
	for i := range rules {
		rule, threshold := &rules[i], t[rules[i].key()]
		if threshold == nil {
			continue
		}
		if rule.defaults.Suspicious != 0 {
			settings = append(settings, rule.newSetting(CategorySuspicious, &threshold.Suspicious))
		}
		if rule.defaults.Zombie != 0 {
			settings = append(settings, rule.newSetting(CategoryZombie, &threshold.Zombie))
		}
	}
	return settings
}

func (r *staleRule) newSetting(category Category, value *time.Duration) ThresholdSetting {
	usage := fmt.Sprintf("Report a Job as %s that %s, this long after %s. 0 means never.", category, r.description, r.ageFrom)
	return ThresholdSetting{
		Name:  fmt.Sprintf("%s-%s-after", r.flag, strings.ToLower(string(category))),
		Usage: strings.ReplaceAll(usage, "`", ""), // package flag takes a quoted word for the name of the value
		Value: value,
	}
}

// Changed returns the settings that differ from the defaults, by name. Nil without any.
func (t Thresholds) Changed() map[string]string {
	defaults := map[string]time.Duration{}
	for _, setting := range DefaultThresholds().Settings() {
		defaults[setting.Name] = *setting.Value
	}
	var changed map[string]string
	for _, setting := range t.Settings() {
		if *setting.Value == defaults[setting.Name] {
			continue
		}
		if changed == nil {
			changed = map[string]string{}
		}
		changed[setting.Name] = FormatDuration(*setting.Value)
	}
	return changed
}

// With returns the thresholds with the settings of a stored report. A setting of another version, which this version does not
// know, has no effect.
func (t Thresholds) With(stored map[string]string) Thresholds {
	changed := Thresholds{}
	for reason, threshold := range t {
		changed[reason] = new(*threshold)
	}
	for _, setting := range changed.Settings() {
		if value, err := ParseDuration(stored[setting.Name]); err == nil {
			*setting.Value = value
		}
	}
	return changed
}

// Validate returns an error that names the negative thresholds.
func (t Thresholds) Validate() error {
	var errs []error
	for _, setting := range t.Settings() {
		if *setting.Value < 0 {
			errs = append(errs, fmt.Errorf("%s is %s, must not be negative", setting.Name, *setting.Value))
		}
	}
	return errors.Join(errs...)
}

// ParseDuration parses a duration that is not negative, such as 90m, 12h, 7d or 1d12h. A day has 24 hours.
func ParseDuration(value string) (time.Duration, error) {
	invalid := fmt.Errorf("invalid duration %q: use a value such as 90m, 12h or 7d", TruncateText(value, MaxCauseBytes/2))
	days, rest, found := strings.Cut(value, "d")
	if !found {
		days, rest = "0", value
	}
	count, err := strconv.ParseUint(days, 10, 16)
	if err != nil {
		return 0, invalid
	}
	duration := time.Duration(count) * oneDay
	if rest != "" {
		hours, err := time.ParseDuration(rest)
		if err != nil || hours < 0 {
			return 0, invalid
		}
		duration += hours
	}
	if duration < 0 || value == "" {
		return 0, invalid
	}
	return duration, nil
}

// FormatDuration returns the shortest text that ParseDuration reads as the same duration.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return d.String()
	}
	text := ""
	if days := d / oneDay; days > 0 {
		text, d = fmt.Sprintf("%dd", days), d%oneDay
	}
	if d == 0 {
		return text
	}
	rest := d.String()
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	return text + rest
}
