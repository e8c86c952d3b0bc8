use super::*;

#[test]
fn the_floors_tell_the_nearest_level_of_every_magnitude() {
    for step in 1..=WIDEST {
        for (code, base) in [(2, 1.0), (4, 1.0), (4, 1.5), (4, 1.0078125), (4, 1.9921875)] {
            let scale = Scale { base, step };
            let code = Code(code);
            let coded = Coded::new(code, scale, 0.0);
            let floors = coded.grid().expect("few levels").floors;
            let middles = (127 << 7..=145 << 7).map(|upper| f32::from_bits(upper << 16));
            let edges = floors.into_iter().filter(|floor| floor.is_finite());
            let around = |value: f32| [value.next_down(), value, value.next_up()];
            let magnitudes = middles
                .map(|ratio| ratio * base)
                .chain(edges)
                .flat_map(around);
            for magnitude in magnitudes.filter(|magnitude| *magnitude >= base) {
                let number = floors.iter().filter(|floor| magnitude >= **floor).count();
                let nearest = nearest(rung(magnitude / base), step, code.top());
                assert_eq!(number as u32, nearest, "{step} {base} {magnitude}");
            }
        }
    }
}

#[test]
fn the_codes_of_many_levels_are_those_of_the_definition_at_every_level() {
    let code = Code(8);
    for step in [1, 2, 3, 17, 64, WIDEST] {
        let base = f32::from_bits(0x3f9b_0000);
        let scale = Scale { base, step };
        let (mut values, mut at) = (vec![base], base);
        while at < f32::MAX / 1.007 && values.len() < 20_000 {
            at *= 1.0 + step as f32 / 9000.0;
            values.extend([at, -at]);
        }
        let coded = Coded::new(code, scale, base);
        for level in Level::available() {
            let (mut codes, mut seen) = (vec![0; values.len()], vec![0.0; values.len()]);
            few_bits::ladder_codes(level, &values, &coded.rungs(), &mut codes);
            few_bits::ladder_values(level, &codes, &coded.rungs(), &mut seen);
            for ((value, code), seen) in values.iter().zip(&codes).zip(&seen) {
                let number = match value.abs() == base {
                    true => 0,
                    false => nearest(rung(value.abs() / base), step, 127),
                };
                assert_eq!(*code, (number << 1) as u8 | u8::from(*value < 0.0));
                let level = scale.level(number);
                assert_eq!(*seen, if *value < 0.0 { -level } else { level });
            }
        }
    }
}
