// Package report makes a JobReport's status from what package zombie found.
//
// It is pure, like the package that judges the Jobs: a Tally takes one finding after
// another and keeps no more than it will show; Scanned and Failed make the next status
// from the last; Decide says whether that is worth a write. It refuses to hold what
// changes by itself: neither ages nor the order in which the Jobs came.
package report
