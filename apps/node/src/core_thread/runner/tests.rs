use super::*;
use std::sync::atomic::AtomicBool;

#[test]
fn a_core_thread_runs_jobs_between_runs_and_ends_when_its_handle_is_dropped() {
    let core = CoreThread::start(0, CoreConfig::default(), None).unwrap();
    let share = CpuAllocation::BestEffort(weir_sched::cpu::Weight::USUAL);
    let vcpu_id =
        core.execute(move |runner| runner.create(CpuTerms { share, overrun: Nanos(0) })).unwrap().unwrap();
    assert_eq!(core.execute(move |runner| runner.stats(vcpu_id)).unwrap(), Some(Stats::default()));
    assert!(core.execute(move |runner| runner.close(vcpu_id)).unwrap().is_ok());
    assert_eq!(core.execute(move |runner| runner.stats(vcpu_id)).unwrap(), None);
}

#[test]
fn time_that_another_thread_takes_of_the_core_counts_as_stolen() {
    let core = CoreThread::start(0, CoreConfig::default(), None).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let over_of_thief = Arc::clone(&over);
    let thief = std::thread::spawn(move || {
        bind(0).unwrap();
        while !over_of_thief.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    // Wall time minus the CPU time of the thread.
    let busy = || {
        let (wall, cpu) = (Instant::now(), thread_time());
        while wall.elapsed() < Duration::from_millis(20) {}
        Nanos::from(wall.elapsed()).0.saturating_sub(thread_time().0 - cpu.0)
    };
    let mut lost = 0;
    while lost < 50_000_000 {
        lost += core.execute(move |_| busy()).unwrap();
    }
    over.store(true, Ordering::Relaxed);
    thief.join().unwrap();
    let stolen = core.execute(Runner::core_stats).unwrap().stolen.0;
    assert!(stolen >= lost / 10 * 9, "{stolen} of {lost}");
}

#[test]
fn a_missing_core_is_refused() {
    let error = CoreThread::start(60_000, CoreConfig::default(), None).unwrap_err();
    assert!(matches!(error, StartError::Bind { core: 60_000, .. }), "{error}");
}
